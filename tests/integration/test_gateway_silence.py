"""The shown state of a trial that has stopped reporting, is about to leave, or waits before a restart."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.experiments import awaited
from tenuto.cli.trials import presence
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.run import RestartPauseEnded, WorkersExited, WorkersStarted
from tests.support.gateway_world import WHY, World, gateway_world, granted, released, requested

HOUR_US = 3_600_000_000
LOG_LINE = """INSERT INTO trial_logs (
    experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text, report_id, report_index
) VALUES (1, 1, $1, 'a', 0, 'stdout', $2, 'still here', gen_random_uuid(), 0)"""


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as found:
        await found.submit()
        yield found


async def trial(world: World) -> dict[str, Any]:
    found: dict[str, Any] = await world.get("/trials/1-1")
    return found


async def test_a_trial_shows_how_long_its_workers_have_said_nothing(world: World) -> None:
    await world.record(requested(1))
    assert (await trial(world))["silent_seconds"] is None
    await world.record(granted("1-1-1"))
    assert (await trial(world))["silent_seconds"] is None, "they have not begun"
    await world.record(WorkersStarted(allocation_id="1-1-1", trial_id="1-1", agent_ids=("a",)))
    found = await trial(world)
    assert 0 <= found["silent_seconds"] < 60
    assert found["said_us"] is not None
    assert (await world.get("/status"))["silent_trials"] == []

    now_us = round(time.time() * 1e6)
    async with world.log.pool.acquire() as connection:
        await connection.execute("UPDATE trials SET said_us = said_us - $1::bigint", 2 * HOUR_US)
        assert (await trial(world))["silent_seconds"] > 7_000
        [silent] = (await world.get("/status"))["silent_trials"]
        assert silent["trial_id"] == "1-1"
        await connection.execute(LOG_LINE, "1-1-1", now_us - HOUR_US)
        assert 3_500 < (await trial(world))["silent_seconds"] < 3_700, "a line of its log is a sign of life"
        await connection.execute(LOG_LINE, "1-1-0", now_us)
        assert (await trial(world))["silent_seconds"] > 7_000, "those of an earlier run are none"
    assert dict(presence(await trial(world)))["last reported something"].startswith("2 h ")


async def test_cancel_pause_and_kill_say_what_they_wait_for_and_until_when(world: World) -> None:
    answer = (await world.http.post("/api/v1/experiments/1/pause")).json()
    assert answer == {"id": 1, "changed": True}
    assert awaited(answer) == []
    await world.http.post("/api/v1/experiments/1/resume")
    await world.record(requested(1), granted("1-1-1"), WorkersStarted(allocation_id="1-1-1", trial_id="1-1", agent_ids=("a",)))
    for verb, seconds in (("pause", 120), ("cancel", 120), ("kill", 0)):
        for changed in (True, False):
            before_us = round(time.time() * 1e6)
            answer = (await world.http.post(f"/api/v1/experiments/1/{verb}")).json()
            assert answer["changed"] is changed
            [item] = answer["waits_for"]
            assert (item["trial_id"], item["allocation_id"], item["agent_ids"]) == ("1-1", "1-1-1", ["node"])
            assert item["silent_seconds"] is not None
            assert seconds - 1 <= (answer["killed_at_us"] - before_us) / 1e6 <= seconds + 60
            lines = awaited(answer)
            assert lines[0].startswith("It waits for trial 1-1 on node, which last reported something ")
            assert lines[1].startswith("Workers that have not left by ")
    assert (await trial(world))["leaving_us"] is None
    await world.record(AllocationPreempted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, reason=WHY))
    assert (await trial(world))["leaving_us"] is not None
    assert "told to leave" in dict(presence(await trial(world)))


async def test_a_pause_before_the_next_start_shows_until_it_ends(world: World) -> None:
    await world.record(requested(1), granted("1-1-1"))
    exited = WorkersExited(
        allocation_id="1-1-1", trial_id="1-1", outcome="lost", exit_code=84, setbacks=4, restart_at_us=1_800_000_000_000_000
    )
    await world.record(exited, released("1-1-1"))
    found = await trial(world)
    assert (found["setbacks"], found["restart_at_us"], found["silent_seconds"]) == (4, 1_800_000_000_000_000, None)
    assert "after 4 starts in a row with nothing new saved or validated" in dict(presence(found))["starts again"]
    await world.record(RestartPauseEnded(allocation_id="1-1-1", trial_id="1-1"))
    assert (await trial(world))["restart_at_us"] is None
