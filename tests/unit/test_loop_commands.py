"""Commands of the service loop: answered after commit, in order, once, and judged by the latest facts."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import Append, Appended, LogUnavailable, VersionConflict
from tenuto.kernel.replay import fold
from tenuto.schemas.events.search import ExperimentCanceled
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import Add, TallyCore, TallyState, weight_changed
from tests.support.tally_loop import make_loop, running, whole


async def test_commands_are_answered_after_commit_in_order() -> None:
    log, loop = MemoryEventLog(), None
    loop = make_loop(log)
    async with running(loop):
        commands = [Add(UUID(int=n), 0, 1, amount) for n, amount in enumerate([1, -1, 2], start=1)]
        first, refused, second = await loop.submit_many(commands)
        assert isinstance(refused, Refused)
        assert refused.code == "invalid"
        assert not isinstance(first, Refused)
        assert not isinstance(second, Refused)
        assert [event.data.trials for event in (*first, *second) if isinstance(event.data, ExperimentCanceled)] == [1, 3]
        assert [event.position for event in (*first, *second)] == [1, 2]
        with pytest.raises(Refused, match="negative"):
            await loop.submit(commands[1])
        assert await loop.submit(commands[0]) == ()
    assert (await log.checkpoint("tally")).commits <= 3


async def test_a_repeated_command_that_the_state_forgot_gets_the_recorded_answer() -> None:
    log = MemoryEventLog()
    loop = make_loop(log, TallyCore(forgets_commands=True))
    async with running(loop):
        once = await loop.submit(Add(UUID(int=1), 0, 1, 5))
        again, other = await loop.submit_many([Add(UUID(int=1), 0, 1, 5), Add(UUID(int=2), 0, 1, 1)])
    assert again == once
    assert not isinstance(other, Refused)
    assert len(await whole(log)) == 2
    assert loop.state.sums[1] == 6


@pytest.mark.parametrize("forgets", [True, False])
async def test_the_same_command_twice_in_one_batch_is_carried_out_once(forgets: bool) -> None:
    log = MemoryEventLog()
    loop = make_loop(log, TallyCore(forgets_commands=forgets))
    async with running(loop):
        command = Add(UUID(int=1), 0, 1, 5)
        once, again, other = await loop.submit_many([command, command, Add(UUID(int=2), 0, 1, 1)])
    assert again == (once if forgets else ())
    assert not isinstance(other, Refused)
    assert len(await whole(log)) == 2
    assert loop.state.sums[1] == 6


async def test_a_defect_in_decide_refuses_the_command_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(TallyCore):
        def guards(self, state: TallyState, cause: object) -> dict[str, int]:
            assert isinstance(cause, Add)
            if cause.amount == 99:
                raise KeyError("gone")
            return {}

    loop = make_loop(MemoryEventLog(), Broken())
    async with running(loop):
        with pytest.raises(Refused, match="defect") as caught:
            await loop.submit(Add(UUID(int=1), 0, 1, 99))
        assert caught.value.code == "internal"
        assert len(await loop.submit(Add(UUID(int=2), 0, 1, 1))) == 1


class GuardLog(MemoryEventLog):
    """Lets another writer win `races` times between decision and commit."""

    def __init__(self, races: int) -> None:
        super().__init__()
        self.races, self.conflicts = races, 0

    async def append(self, batch: Append) -> Appended:
        if batch.expected_versions and self.races:
            self.races -= 1
            await super().append(Append([weight_changed(UUID(int=1000 + self.races), 1, 1.0)]))
        try:
            return await super().append(batch)
        except VersionConflict:
            self.conflicts += 1
            raise


async def test_a_guarded_command_is_judged_by_the_latest_facts() -> None:
    log = GuardLog(races=3)
    loop = make_loop(log)
    async with running(loop):
        [event] = await loop.submit(Add(UUID(int=1), 0, 1, 5))
    assert log.conflicts == 3
    assert event.seen_position == 3
    assert loop.state.versions[1] == 3
    assert fold(TallyCore(), await whole(log)) == loop.state


async def test_a_guard_that_never_holds_fails_the_command_only() -> None:
    log = GuardLog(races=1000)
    loop = make_loop(log)
    async with running(loop):
        with pytest.raises(VersionConflict):
            await loop.submit(Add(UUID(int=1), 0, 1, 5))
        log.races = 0
        assert len(await loop.submit(Add(UUID(int=2), 0, 1, 5))) == 1


async def test_waiting_commands_fail_when_the_loop_stops() -> None:
    log = MemoryEventLog()
    entered = asyncio.Event()

    async def never(batch: Append) -> Appended:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    loop = make_loop(log)
    async with running(loop):
        await loop.wait_ready()
        log.append = never  # type: ignore[method-assign]
        in_flight = asyncio.create_task(loop.submit(Add(UUID(int=1), 0, 1, 5)))
        await entered.wait()
        waiting = asyncio.create_task(loop.submit(Add(UUID(int=2), 0, 1, 5)))
        await asyncio.sleep(0)
    for task in (in_flight, waiting):
        with pytest.raises(LogUnavailable):
            await task
    with pytest.raises(LogUnavailable):
        await loop.submit(Add(UUID(int=3), 0, 1, 5))
