"""Replay: the fold does not depend on batching, and a decision that differs from the record is found and named."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.replay import fold, fold_order, verify_decisions
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import ExperimentCanceled
from tests.support.manual_clock import ManualClock
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import Add, TallyCore, priority_changed, weight_changed


async def record(seed: int, rounds: int = 12, **core: int) -> tuple[list[Event], list[tuple[int, int, bytes]]]:
    """A log written by a live loop with inputs and commands in random batches, and each committed (position, own position,
    dump) on the way."""
    chance, clock = random.Random(seed), ManualClock(seed=seed)
    log = MemoryEventLog()
    loop = ServiceLoop(
        TallyCore(**core), log, LogFeed(log), clock, Settings(batch_events_max=chance.choice([1, 3, 50])), checks=True
    )
    states: list[tuple[int, int, bytes]] = []
    loop.on_folded(lambda state, events: states.append((loop.position, loop.own_position, loop.core.dump(state))))
    task = asyncio.create_task(loop.run())
    for _ in range(rounds):
        events = [
            priority_changed(clock.new_id(), chance.randint(1, 3), chance.randint(1, 9))
            if chance.random() < 0.6
            else weight_changed(clock.new_id(), 1, 1.5)
            for _ in range(chance.randint(1, 6))
        ]
        last = (await log.append(Append(events))).events[-1].position
        if chance.random() < 0.5:
            await loop.submit(Add(clock.new_id(), 0, chance.randint(1, 3), chance.randint(0, 4)))
        if chance.random() < 0.5:
            await loop.wait_position(last)
    await loop.wait_position(await log.head())
    await stop_task(task)
    return await log.read(0, 10_000), states


def recorded(seed: int, **core: int) -> tuple[list[Event], list[tuple[int, int, bytes]]]:
    return asyncio.run(record(seed, **core))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_every_committed_state_is_a_fold_of_the_log(seed: int) -> None:
    events, states = recorded(seed)
    core = TallyCore()
    for position, own_position, dump in states:
        known = [event for event in events if event.position <= (own_position if event.type in core.emits else position)]
        assert core.dump(fold(core, known)) == dump
    verdict = verify_decisions(core, events)
    assert verdict.ok
    own = [event for event in events if event.type in core.emits]
    assert verdict.decisions + verdict.from_commands == len(own)


def test_a_fold_ends_where_it_is_told() -> None:
    events, _ = recorded(7)
    core = TallyCore()
    for upto in (0, 1, len(events) // 2, len(events)):
        assert fold(core, events, upto) == fold(core, events[:upto])
    head = events[-1].position
    waiting = priority_changed(UUID(int=77), 1, 4).recorded(head + 1, 99)
    assert fold(core, [*events, waiting], inputs_upto=head) == fold(core, events)
    assert fold(core, [*events, waiting]).inputs == fold(core, events).inputs + 1


def test_the_order_of_folding_follows_what_was_seen() -> None:
    """The own event was decided after the first input only, though the second was recorded before it."""
    inputs = [priority_changed(UUID(int=n), 1, n).recorded(n, n) for n in (1, 2)]
    own = replace(
        inputs[0], id=UUID(int=9), type="ExperimentCanceled", stream="search/1", causation_id=UUID(int=1), seen_position=1
    ).recorded(3, 1)
    assert [event.position for event in fold_order(TallyCore(), [*inputs, own])] == [1, 3, 2]


def tamper(events: list[Event], change: dict[str, object]) -> tuple[list[Event], Event]:
    """Change one own event that answers an input."""
    inputs = {event.id for event in events if event.type == "ExperimentPriorityChanged"}
    victim = [event for event in events if event.causation_id in inputs][2]
    return [replace(event, **change) if event is victim else event for event in events], victim  # type: ignore[arg-type]


def test_a_changed_payload_is_found() -> None:
    events, _ = recorded(3)
    data = next(event for event in events if event.type == "ExperimentCanceled").data
    assert isinstance(data, ExperimentCanceled)
    changed, victim = tamper(events, {"payload": data.model_copy(update={"trials": 999}).to_json()})
    verdict = verify_decisions(TallyCore(), changed)
    assert not verdict.ok
    assert verdict.divergences[0].event_id == str(victim.id)
    assert verdict.divergences[0].position == victim.seen_position
    assert '"trials":999' in str(verdict.divergences[0].expected)
    assert "recorded" in str(verdict.divergences[0])


def test_a_missing_decision_is_found() -> None:
    events, _ = recorded(3)
    _, victim = tamper(events, {})
    verdict = verify_decisions(TallyCore(), [event for event in events if event is not victim])
    assert verdict.divergences[0].expected is None
    assert verdict.divergences[0].event_id == str(victim.id)


def test_a_decision_nobody_would_take_is_found() -> None:
    events, _ = recorded(3)
    _, victim = tamper(events, {})
    extra = replace(victim, id=UUID(int=5), position=victim.position)
    at = events.index(victim) + 1
    verdict = verify_decisions(TallyCore(), [*events[:at], extra, *events[at:]])
    assert verdict.divergences[0].decided is None


@pytest.mark.parametrize("events_per_input", [0, 2])
def test_another_rule_diverges_unless_its_version_is_raised(events_per_input: int) -> None:
    events, _ = recorded(3)
    assert not verify_decisions(TallyCore(events_per_input=events_per_input), events).ok
    raised = verify_decisions(TallyCore(events_per_input=events_per_input, rule_version=2), events)
    assert raised.ok
    assert raised.other_rules + raised.from_commands == len([event for event in events if event.type == "ExperimentCanceled"])


def test_what_is_not_decided_yet_is_no_divergence() -> None:
    events, _ = recorded(3)
    head = events[-1].position
    waiting = priority_changed(UUID(int=77), 1, 4).recorded(head + 1, 99)
    verdict = verify_decisions(TallyCore(), [*events, waiting])
    assert verdict.ok
    assert verdict.undecided == 1
    assert not verify_decisions(TallyCore(), [*events, waiting], decided_upto=head + 1).ok


def test_a_core_that_fails_on_a_recorded_input_diverges() -> None:
    events, _ = recorded(3)
    poison = priority_changed(UUID(int=77), 1, 13).recorded(events[-1].position + 1, 99)
    verdict = verify_decisions(TallyCore(poisonous=True), [*events, poison], decided_upto=poison.position)
    assert "unlucky" in str(verdict.divergences[-1].decided)
