"""A decision of several steps, each of which sees the ones before it as folded. Pure."""

from __future__ import annotations

from tenuto.kernel.folding import Draft
from tenuto.schemas.events import EventData
from tenuto.services.launcher.evolve import FOLDS
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import ProvisionedPool


class Course:
    def __init__(self, state: State, now_us: int) -> None:
        self.state, self.now_us = state, now_us
        self.decided: list[EventData] = []

    def add(self, data: EventData) -> None:
        self.state = FOLDS.apply(self.state, data, Draft(self.now_us))
        self.decided.append(data)

    def pool(self, name: str) -> ProvisionedPool:
        return self.state.pools[name]

    def seconds_since(self, time_us: int) -> float:
        return (self.now_us - time_us) / 1e6
