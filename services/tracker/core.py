"""The tracker's rules, assembled for the service loop, replay and the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenuto.kernel.codec import Codec
from tenuto.kernel.core import Command, FoldedCore
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.ids import experiment_of
from tenuto.services.tracker import decide, state
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.evolve import FOLDS
from tenuto.services.tracker.state import State


class TrackerCore(FoldedCore[State]):
    name = "tracker"
    rule_version = 5
    """2: a checkpoint that was kept only because other trials started from it goes when they need it no more. 3: losses are given
    up by what ended the workers, and a failure that would repeat at once. 4: deaths are borne as often as `max_restarts` says. 5:
    an infinite metric makes no checkpoint the best, as in the search; ends of every kind without progress are counted and
    bounded, causes are said and not read from exit codes, and the same error twice without progress is the last."""
    folds = FOLDS
    codec = Codec(State, state.derive)

    def initial(self) -> State:
        return state.initial()

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide.decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(experiment_of(getattr(data, "trial_id", "")))

    def guards(self, state: State, cause: Event | Command) -> Mapping[str, int]:
        """A report is judged by the allocations as they are when it is committed, not as they were when it was read."""
        if not isinstance(cause, RecordTrialReport):
            return {}
        experiment = state.experiment(experiment_of(cause.report.trial_id))
        if experiment is None:
            return {}
        stream = f"pool/{experiment.pool}"
        return {stream: state.pool_versions.get(stream, 0)}

    def check(self, state_: State) -> None:
        state.check(state_)
