"""The service loop on the in-memory log: exactly once, in order, halting loudly, and recovering byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tenuto.kernel.commit_draft import Poisoned
from tenuto.kernel.eventlog import Append, Appended, ConsumerCheckpoint, Fenced, LogUnavailable
from tenuto.kernel.loop import FeedBroken, ServiceLoop
from tenuto.kernel.recovery import recover
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.kernel.settings import Settings
from tenuto.schemas.envelope import Event
from tests.support.manual_clock import ManualClock
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import POISON_PRIORITY, Add, TallyCore, TallyState, priority_changed, weight_changed
from tests.support.tally_loop import add_inputs, inputs, make_loop, own, running, whole


async def test_each_input_is_answered_once_and_the_state_is_the_fold() -> None:
    log = MemoryEventLog()
    last = await add_inputs(log, inputs(200))
    loop = make_loop(log)
    async with running(loop):
        await loop.wait_position(last)
        last = await add_inputs(log, inputs(50, seed=1))
        await loop.wait_position(last)
    events = await whole(log)
    causes = [event.causation_id for event in own(events)]
    assert causes == [event.id for event in events if event.type == "ExperimentPriorityChanged"]
    core = TallyCore()
    assert core.dump(fold(core, events)) == core.dump(loop.state)
    verdict = verify_decisions(core, events)
    assert verdict.ok
    assert verdict.decisions == len(causes)


async def test_the_cut_into_batches_changes_nothing() -> None:
    dumps = set()
    for batch_events_max in (1, 7, 500):
        log = MemoryEventLog()
        last = await add_inputs(log, inputs(100))
        loop = make_loop(log, batch_events_max=batch_events_max)
        async with running(loop):
            await loop.wait_position(last)
        dumps.add(loop.core.dump(loop.state))
    assert len(dumps) == 1


async def test_derived_events_say_where_they_come_from() -> None:
    log = MemoryEventLog()
    cause = priority_changed(UUID(int=7), 3, 5, trace="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    await add_inputs(log, [weight_changed(UUID(int=6), 3, 1.0), cause])
    loop = make_loop(log)
    async with running(loop):
        await loop.wait_position(2)
        [event] = own(await whole(log))
    assert (event.causation_id, event.seen_position, event.actor) == (cause.id, 2, "tally/1")
    assert (event.correlation_id, event.trace, event.stream) == ("3", cause.trace, "search/3")


async def test_a_poison_input_halts_after_what_came_before_it() -> None:
    log = MemoryEventLog()
    good = [priority_changed(UUID(int=n), 1, 1) for n in (1, 2)]
    await add_inputs(log, [*good, priority_changed(UUID(int=3), 1, POISON_PRIORITY), priority_changed(UUID(int=4), 1, 1)])
    loop = make_loop(log, TallyCore(poisonous=True))
    with pytest.raises(Poisoned, match="position 3"):
        await loop.run()
    assert (await log.checkpoint("tally")).position == 2
    assert [event.causation_id for event in own(await whole(log))] == [event.id for event in good]
    fixed = make_loop(log)
    async with running(fixed):
        await fixed.wait_position(6)
    assert fixed.state.sums[1] == 1 + 1 + POISON_PRIORITY + 1


async def test_a_second_instance_fences_the_first() -> None:
    log = MemoryEventLog()
    first, second = make_loop(log), make_loop(log)
    async with running(first) as task:
        await first.wait_ready()
        async with running(second):
            await second.wait_ready()
            await add_inputs(log, inputs(5))
            with pytest.raises(Fenced):
                await task
            await second.wait_position(5)
    events = await whole(log)
    assert verify_decisions(TallyCore(), events).ok


class LossyLog(MemoryEventLog):
    """Says that it is unavailable: before the commit, or after it (the answer is lost)."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self.faults = faults

    async def append(self, batch: Append) -> Appended:
        fault = self.faults.pop(0) if self.faults and batch.events and batch.checkpoint else ""
        if fault == "before":
            raise LogUnavailable("the server went away")
        appended = await super().append(batch)
        if fault == "after":
            raise LogUnavailable("the answer was lost")
        return appended


@pytest.mark.parametrize("faults", [["before"], ["after"], ["before", "after"]])
async def test_a_commit_whose_answer_is_lost_is_not_doubled(faults: list[str]) -> None:
    log = LossyLog(list(faults))
    loop = make_loop(log)
    async with running(loop):
        [event] = await loop.submit(Add(UUID(int=1), 0, 1, 5))
        assert event.position == 1
        assert loop.available
        last = await add_inputs(log, inputs(5))
        await loop.wait_position(last)
    assert fold(TallyCore(), await whole(log)) == loop.state
    assert len([event for event in await whole(log) if event.causation_id == UUID(int=1)]) == 1


async def test_recovery_from_a_snapshot_equals_recovery_from_the_start() -> None:
    log = MemoryEventLog()
    loop = make_loop(log, snapshot_events=20, batch_events_max=10)
    async with running(loop):
        for seed in range(6):
            last = await add_inputs(log, inputs(25, seed))
            await loop.wait_position(last)
            await loop.submit(Add(UUID(int=10**6 + seed), 0, 2, 3))
    snapshot = await log.latest_snapshot("tally", 1)
    assert snapshot is not None
    assert snapshot.position > 0
    core = TallyCore()
    checkpoint = await log.checkpoint("tally")
    again = await recover(core, log)
    assert again.snapshot_position == snapshot.position
    whole_fold = fold(core, await whole(log), inputs_upto=checkpoint.position)
    assert core.dump(again.state) == core.dump(whole_fold)
    await log.save_snapshot(replace(snapshot, state=snapshot.state.replace(b"1", b"2", 1)))
    unread = await recover(core, log)
    assert (unread.snapshot_position, unread.own_position) == (0, again.own_position), "a damaged snapshot is not gone on from"
    assert core.dump(unread.state) == core.dump(whole_fold)


@pytest.mark.parametrize("crash_after_parts", [0, 1, 2])
async def test_a_decision_larger_than_an_append_survives_a_crash_between_its_parts(crash_after_parts: int) -> None:
    """12,000 events from one input: three appends."""

    class CrashLog(MemoryEventLog):
        parts_left = crash_after_parts

        async def append(self, batch: Append) -> Appended:
            if batch.events and batch.checkpoint:
                if self.parts_left == 0:
                    raise Fenced("crash")
                self.parts_left -= 1
            return await super().append(batch)

    log = CrashLog()
    core = TallyCore(events_per_input=12_000)
    await add_inputs(
        log, [weight_changed(UUID(int=1), 1, 1.0), priority_changed(UUID(int=2), 1, 1), weight_changed(UUID(int=3), 1, 1.0)]
    )
    with pytest.raises(Fenced):
        await make_loop(log, core).run()
    log.parts_left = -1
    loop = make_loop(log, core)
    async with running(loop):
        pending = asyncio.create_task(loop.submit(Add(UUID(int=9), 0, 1, 1)))
        await loop.wait_position(3)
        await pending
    events = [*await whole(log), *await log.read(10_000, 10_000)]
    ids = [event.id for event in own(events)]
    assert len(ids) == len(set(ids)) == 12_001
    assert core.dump(fold(core, events)) == core.dump(loop.state)
    assert verify_decisions(core, events).ok


async def test_listeners_see_every_folded_event_once_in_order() -> None:
    log = MemoryEventLog()
    loop = make_loop(log, batch_events_max=7)
    seen: list[Event] = []
    calls: list[int] = []

    def listen(state: TallyState, events: Sequence[Event]) -> None:
        seen.extend(events)
        calls.append(len(events))

    loop.on_folded(listen)
    async with running(loop):
        last = await add_inputs(log, inputs(40))
        await loop.wait_position(last)
    assert calls[0] == 0
    state = TallyState()
    for event in seen:
        assert event.position > 0
        state = loop.core.evolve(state, event)
    assert state == loop.state


async def test_the_checkpoint_follows_when_nothing_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.kernel.loop.CHECKPOINT_SECONDS", 0.01)
    log = MemoryEventLog()
    moved = asyncio.Event()
    original = log.append

    async def append(batch: Append) -> Appended:
        appended = await original(batch)
        if batch.checkpoint and batch.next_position == 3:
            moved.set()
        return appended

    monkeypatch.setattr(log, "append", append)
    loop = make_loop(log)
    async with running(loop):
        await add_inputs(log, [weight_changed(UUID(int=n), 1, 1.0) for n in (1, 2, 3)])
        await moved.wait()
    assert (await log.checkpoint("tally")) == ConsumerCheckpoint("tally", 3, 2)


async def test_a_feed_with_a_gap_halts_the_loop() -> None:
    class Gap:
        async def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
            yield [replace(priority_changed(UUID(int=1), 1, 1), position=2)]

    loop = ServiceLoop(TallyCore(), MemoryEventLog(), Gap(), ManualClock(), Settings())
    with pytest.raises(FeedBroken):
        await loop.run()
