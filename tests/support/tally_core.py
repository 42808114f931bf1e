"""A very small core for tests of the kernel: it adds up the priorities that experiments are given.

For each ExperimentPriorityChanged it decides an ExperimentCanceled with the new sum of that experiment as its number of trials:
an event with a whole number, whose meaning is nothing to the kernel.
The command Add does the same without an input; it is guarded by the experiment's request stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from immutables import Map

from tenuto.kernel.codec import Codec
from tenuto.kernel.core import Command, Refused
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentPriorityChanged, ExperimentWeightChanged
from tenuto.schemas.events.search import ExperimentCanceled

POISON_PRIORITY = 13
"""An input with this priority cannot be decided on, if the core was made so."""


@dataclass(frozen=True)
class Add:
    id: UUID
    time_us: int
    experiment_id: int
    amount: int
    trace: str = ""


@dataclass(frozen=True)
class TallyState:
    sums: Map[int, int] = field(default_factory=Map)
    versions: Map[int, int] = field(default_factory=Map)
    """Of the request streams, as folded."""
    done: Map[str, int] = field(default_factory=Map)
    """Commands that were carried out: a repeated one decides nothing."""
    inputs: int = 0
    """Makes the state depend on every input, and `last` on their order."""
    last: int = 0


CODEC = Codec(TallyState)


@dataclass
class TallyCore:
    name: str = "tally"
    rule_version: int = 1
    events_per_input: int = 1
    poisonous: bool = False
    forgets_commands: bool = False
    """Makes the log, not the state, find the repeated command."""
    consumes: frozenset[str] = frozenset({"ExperimentPriorityChanged", "ExperimentWeightChanged"})
    emits: frozenset[str] = frozenset({"ExperimentCanceled"})

    def initial(self) -> TallyState:
        return TallyState()

    def evolve(self, state: TallyState, event: Event) -> TallyState:
        data = event.data
        if isinstance(data, ExperimentPriorityChanged | ExperimentWeightChanged):
            return replace(
                state,
                versions=state.versions.set(data.experiment_id, event.version),
                inputs=state.inputs + 1,
                last=(state.last * 31 + data.experiment_id) % 1_000_003,
            )
        assert isinstance(data, ExperimentCanceled)
        return replace(
            state,
            sums=state.sums.set(data.experiment_id, data.trials),
            done=state.done.set(str(event.causation_id), data.trials),
            last=(state.last * 31 + data.trials) % 1_000_003,
        )

    def decide(self, state: TallyState, cause: Event | Command) -> Sequence[EventData]:
        if isinstance(cause, Add):
            if cause.amount < 0:
                raise Refused("a negative amount cannot be added; give zero or more.", "invalid")
            if str(cause.id) in state.done and not self.forgets_commands:
                return []
            return self._sums(state, cause.experiment_id, cause.amount, 1)
        assert isinstance(cause, Event)
        if not isinstance(cause.data, ExperimentPriorityChanged):
            return []
        if self.poisonous and cause.data.priority == POISON_PRIORITY:
            raise ValueError("unlucky")
        return self._sums(state, cause.data.experiment_id, cause.data.priority, self.events_per_input)

    def _sums(self, state: TallyState, experiment_id: int, amount: int, times: int) -> list[EventData]:
        before = state.sums.get(experiment_id, 0)
        return [ExperimentCanceled(experiment_id=experiment_id, trials=before + amount * (index + 1)) for index in range(times)]

    def correlation_id(self, state: TallyState, data: EventData) -> str:
        assert isinstance(data, ExperimentCanceled)
        return str(data.experiment_id)

    def guards(self, state: TallyState, cause: Event | Command) -> Mapping[str, int]:
        if isinstance(cause, Add):
            return {f"request/{cause.experiment_id}": state.versions.get(cause.experiment_id, 0)}
        return {}

    def check(self, state: TallyState) -> None:
        assert all(total >= 0 for total in state.sums.values())

    def dump(self, state: TallyState) -> bytes:
        return CODEC.dump(state)

    def load(self, data: bytes) -> TallyState:
        return CODEC.load(data)


def priority_changed(id: UUID, experiment_id: int, priority: int, time_us: int = 0, trace: str = "") -> Event:
    """An input for the core, as the gateway would record it."""
    return _request(ExperimentPriorityChanged(experiment_id=experiment_id, priority=priority), id, time_us, trace)


def weight_changed(id: UUID, experiment_id: int, weight: float, time_us: int = 0) -> Event:
    """An input that the core folds and decides nothing on."""
    return _request(ExperimentWeightChanged(experiment_id=experiment_id, weight=weight), id, time_us, "")


def _request(data: ExperimentPriorityChanged | ExperimentWeightChanged, id: UUID, time_us: int, trace: str) -> Event:
    return Event(
        id=id,
        stream=data.stream(),
        type=data.TYPE,
        schema_version=data.VERSION,
        time_us=time_us,
        payload=data.to_json(),
        actor="gateway/1",
        correlation_id=str(data.experiment_id),
        trace=trace,
    )
