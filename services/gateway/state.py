"""State of the gateway, as needed to answer a request: the slices of its subjects, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.experiments.state import ExperimentsState, check_experiments
from tenuto.services.gateway.rights.state import check_people


@dataclass(frozen=True)
class State(ExperimentsState, ClusterState):
    """Each subject declares what it remembers, and its rules see that and what it builds on, nothing else."""


def initial() -> State:
    return State()


def check(state: State) -> None:
    """Assert what must hold after every event."""
    check_people(state)
    check_experiments(state)
