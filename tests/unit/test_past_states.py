"""The state at any position is a fold of the log, whichever positions were asked for before, and however few states are kept."""

from __future__ import annotations

import asyncio
import random

import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.past_states import NotYet, Past
from tenuto.kernel.replay import fold
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import TallyCore, priority_changed
from tests.unit.test_replay import record


@pytest.mark.parametrize(("seed", "kept_max", "kept_events"), [(1, 256, 64), (2, 4, 1), (3, 3, 2), (4, 1, 1)])
async def test_any_position_in_any_order(seed: int, kept_max: int, kept_events: int) -> None:
    events, _ = await record(seed)
    core, log, chance = TallyCore(), MemoryEventLog(), random.Random(seed)
    await log.append(Append(events))
    past = Past(core, log, kept_max=kept_max, kept_events=kept_events)
    positions = [event.position for event in events]
    for position in [*chance.sample(positions, len(positions)), *positions[::-1]]:
        assert core.dump(await past.at(position, 60.0)) == core.dump(fold(core, events, position)), position
        assert len(past._kept) <= kept_max


async def test_a_long_log_is_read_in_several_questions() -> None:
    log, core = MemoryEventLog(), TallyCore()
    clock = random.Random(1)
    for _ in range(3):
        from uuid import UUID

        events = [priority_changed(UUID(int=clock.getrandbits(128)), 1, number % 9 + 1) for number in range(2_500)]
        await log.append(Append(events))
    past, read = Past(core, log), []
    while True:
        try:
            state = await past.at(7_500, 0.0)
            break
        except NotYet as error:
            read.append(error.read_upto)
    assert read == [2_000, 4_000, 6_000]
    assert core.dump(state) == core.dump(fold(core, await log.read(0, 10_000)))


def test_no_state_is_lost_between_two_questions() -> None:
    """A question that is canceled leaves what was kept as it was."""

    async def ask() -> None:
        events, _ = await record(5)
        core, log = TallyCore(), MemoryEventLog()
        await log.append(Append(events))
        past = Past(core, log, kept_events=1)
        asking = asyncio.create_task(past.at(len(events), 60.0))
        await asyncio.sleep(0)
        asking.cancel()
        assert core.dump(await past.at(len(events), 60.0)) == core.dump(fold(core, events))

    asyncio.run(ask())
