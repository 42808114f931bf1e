"""The scheduler's pure core: the same code in the live service, in replay and in the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Command, FoldedCore
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.services.scheduler.decide import decide
from tenuto.services.scheduler.evolve import FOLDS
from tenuto.services.scheduler.state import State, initial
from tenuto.services.scheduler.state.check import check
from tenuto.services.scheduler.state.rebuild import CODEC


class SchedulerCore(FoldedCore[State]):
    name = "scheduler"
    rule_version = 9
    """9: agents that run in an image as a whole run the trials that name it, and no others; 8: what a pool lacks is told by
    image."""
    folds = FOLDS
    codec = CODEC

    def initial(self) -> State:
        return initial()

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(getattr(data, "experiment_id", ""))

    def check(self, state: State) -> None:
        check(state)
