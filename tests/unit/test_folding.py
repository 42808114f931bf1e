"""A new type of event needs its class and its folds: registries, `consumes` and `emits` are read from these."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from tenuto.kernel.folding import DraftEnvelope, Envelope, Folds, WithEnvelope, unchanged
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.registry import EVENT_MODELS, OWNERS, EventData, event
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialEvent


@pytest.fixture
def probed() -> Iterator[type[EventData]]:
    """A type of event that only its class declares."""

    @event("ProbeTaken")
    class ProbeTaken(TrialEvent):
        depth: int

    yield ProbeTaken
    del EVENT_MODELS["ProbeTaken"], OWNERS["ProbeTaken"]


def recorded(data: EventData) -> Event:
    return Event(UUID(int=1), data.stream(), data.TYPE, data.VERSION, 7, data.to_json(), "tracker/1")


def test_a_new_type_is_emitted_by_its_owner_and_consumed_by_who_folds_it(probed: type[EventData]) -> None:
    def deeper(state: int, data: EventData) -> int:
        return state + data.depth  # type: ignore[attr-defined,no-any-return]

    owner, other = Folds[int]("tracker", {probed: deeper}), Folds[int]("searcher", {probed: deeper, TrialStopped: unchanged})
    assert "ProbeTaken" in owner.emits
    assert owner.consumes == frozenset()
    assert other.consumes == {"ProbeTaken"}, "what a service owns it does not consume"
    assert "TrialStopped" in other.emits
    taken = recorded(probed(trial_id="1-1", depth=3))  # type: ignore[call-arg]
    assert owner.evolve(4, taken) == other.evolve(4, taken) == 7


def test_a_fold_may_read_the_envelope_and_an_unknown_type_changes_nothing() -> None:
    def at(state: tuple[int, ...], data: TrialStopped, envelope: Envelope) -> tuple[int, ...]:
        return (*state, envelope.time_us)

    folds: Folds[tuple[int, ...]] = Folds("searcher", {TrialStopped: WithEnvelope(at)})
    stopped = TrialStopped(trial_id="1-1", experiment_id=1, outcome="completed", reason={"rule": "x"})  # type: ignore[arg-type]
    assert folds.evolve((), recorded(stopped)) == (7,)
    assert folds.apply((), stopped, DraftEnvelope(9)) == (9,)
    before = (1,)
    other = TrialRequested.model_construct(trial_id="1-1")
    assert folds.apply(before, other) is before
