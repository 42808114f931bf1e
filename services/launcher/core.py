"""The launcher's rules, assembled for the service loop, replay and the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.codec import Codec
from tenuto.kernel.core import Command, FoldedCore
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.run import RunEvent
from tenuto.schemas.ids import experiment_of
from tenuto.services.launcher import decide, state
from tenuto.services.launcher.evolve import FOLDS
from tenuto.services.launcher.state import State


class LauncherCore(FoldedCore[State]):
    name = "launcher"
    rule_version = 5
    """5: a node may run in the image of the gang that it is for; 4: a node is requested with that image."""
    folds = FOLDS
    codec = Codec(State, state.derive)

    def initial(self) -> State:
        return state.initial()

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide.decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(experiment_of(data.allocation_id)) if isinstance(data, RunEvent) else ""

    def check(self, state_: State) -> None:
        state.check(state_)
