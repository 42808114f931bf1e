"""The scheduler's pure core: the same code in the live service, in replay and in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.kernel.core import Command
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import (
    AllocationGranted,
    AllocationPreempted,
    AllocationReleased,
    AllocationResized,
    SlotsReserved,
)
from tenuto.services.scheduler import codec
from tenuto.services.scheduler.decide import decide
from tenuto.services.scheduler.evolve import CONSUMED, OWN, evolve
from tenuto.services.scheduler.state import State, check, initial


class SchedulerCore:
    name = "scheduler"
    rule_version = 6
    consumes = CONSUMED
    emits = OWN

    def initial(self) -> State:
        return initial()

    def evolve(self, state: State, event: Event) -> State:
        return evolve(state, event)

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        assert isinstance(data, AllocationGranted | AllocationPreempted | AllocationResized | AllocationReleased | SlotsReserved)
        return str(data.experiment_id)

    def guards(self, state: State, cause: Event | Command) -> Mapping[str, int]:
        return {}

    def check(self, state: State) -> None:
        check.check(state)

    def dump(self, state: State) -> bytes:
        return codec.dump(state)

    def load(self, data: bytes) -> State:
        return codec.load(data)
