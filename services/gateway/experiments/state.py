"""State of the experiments, as needed to answer a request about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.record import Parent
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.experiments.policies.rules_state import Acting
from tenuto.services.gateway.notices.state import NoticesState
from tenuto.services.gateway.templates.state import TemplatesState

DELETED_MAX = 1_000
"""Deleted experiments that are remembered for requests that were under way at their deletion; the views know all of them."""


@dataclass(frozen=True)
class Live:
    """An experiment that the search has not ended."""

    experiment_id: int
    priority: int
    weight: float
    max_slots: int | None
    paused: bool = False
    canceled: bool = False
    killed: bool = False
    place: float = 0.0
    """Smaller is earlier among those of its priority."""
    pool: str = "default"
    user: str = ""
    """User who submitted it."""
    workspace: str = "default"
    method: str = ""
    """Name of the searcher: not all can have other limits while they run."""
    created: int = 0
    trials_max: int = 0
    """Number of trials that a search by a user's own class has asked for so far (`created`), and may ask for (`trials_max`)."""
    origins: tuple[int, ...] = ()
    """Experiments that it was made from, sorted: they are not deleted before it has ended."""
    max_wall_hours: float = 0.0
    workspace_hours_max: float = 0.0
    """Longest time in hours that it may run, as its configuration says, and as its workspace said at the submission. 0: no
    limit."""
    allocations: int = 0
    """Allocations of its trials that are granted and not released."""
    wall_since_us: int = 0
    """Time of the grant since which there was always one; meaningless while there is none."""
    wall_us: int = 0
    """Time in microseconds that it ran before that."""


def origins_of(config: ExperimentConfig, parent: Parent | None) -> tuple[int, ...]:
    """Experiments that one with this configuration is made from: its parent, and those whose checkpoints it starts from."""
    start = config.searcher.source_checkpoint
    checkpoints = [source.checkpoint_id for source in parent.sources] if parent is not None else []
    found = {parent.experiment_id} if parent is not None else set()
    if start is not None:
        checkpoints.append(start.checkpoint_id)
    numbers = [name.partition("-")[0] for name in checkpoints]
    return tuple(sorted(found | {int(number) for number in numbers if number.isdecimal()}))


class Deletion(NamedTuple):
    """A request to delete an experiment, which can still be taken back."""

    user: str
    asked_us: int
    due_us: int


UNMANAGED_MAX = 10_000
"""Experiments of unmanaged runs: all are kept in memory."""


class Unmanaged(NamedTuple):
    """An experiment of unmanaged runs."""

    name: str
    user: str
    """User who created it."""
    trials: int = 0


@dataclass(frozen=True)
class ExperimentsState(NoticesState, TemplatesState, ClusterState):
    """State of experiments in the gateway: those that the search has not ended, with the last requests about them."""

    live: Map[int, Live] = field(default_factory=Map)
    unmanaged: Map[int, Unmanaged] = field(default_factory=Map)
    """Unmanaged experiments by id."""
    acting: Acting = field(default_factory=Acting)
    """Rules of experiments, and how often they have acted."""
    deletions: Map[int, Deletion] = field(default_factory=Map)
    """Pending deletions by experiment."""
    deleted: tuple[int, ...] = ()
    """Experiments that were deleted last, at most DELETED_MAX."""

    def running_of(self, user: str) -> Sequence[int]:
        return sorted(experiment_id for experiment_id, live in self.live.items() if live.user == user)

    def unmanaged_named(self, name: str) -> int | None:
        """Id of the experiment of unmanaged runs that has this name."""
        return next((key for key in sorted(self.unmanaged) if self.unmanaged[key].name == name), None)


def check_experiments(state: ExperimentsState) -> None:
    """Assert what must hold after every event."""
    for experiment_id in sorted(state.live):
        live = state.live[experiment_id]
        assert live.experiment_id == experiment_id
        assert 1 <= experiment_id <= state.submitted
        assert live.canceled or not live.killed
        assert live.allocations >= 0
        assert live.wall_us >= 0
