"""An agent whose directory is removed, or whose database is damaged, says so and leaves: as processes, on a real NATS server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path

from tenuto.embedded.process import is_alive
from tests.integration.test_agent import bench
from tests.support.agent_bench import Bench
from tests.support.control_plane import AGENT, make_assignment
from tests.support.waiting import SECONDS_MAX

__all__ = ["bench"]
SUPPORT = Path(__file__).parents[1] / "support"


def _process_environment(bench: Bench) -> dict[str, str]:
    return os.environ | {
        "TENUTO_NATS_URL": bench.settings.nats_url,
        "TENUTO_AGENT_DIRECTORY": bench.settings.agent_directory,
        "TENUTO_SHARED_DIRECTORY": bench.settings.shared_directory,
        "TENUTO_AGENT_ID": AGENT,
        "TENUTO_CPU_SLOTS": "1",
        "TENUTO_HEARTBEAT_SECONDS": "0.2",
    }


async def _agent_process(bench: Bench) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, str(SUPPORT / "run_agent.py"), env=_process_environment(bench), stderr=pipe
    )


async def _last_words(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(SECONDS_MAX):
        _, told = await process.communicate()
    assert "Traceback" not in told.decode()
    return told.decode().strip().splitlines()[-1]


async def test_an_agent_whose_directory_is_removed_leaves_and_a_new_one_begins_anew(bench: Bench) -> None:
    control = bench.control
    first = await _agent_process(bench)
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(bench.context))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    spool = control.heartbeats[-1].spool_id
    shutil.rmtree(bench.directory)
    said = await _last_words(first)
    assert said.startswith(f"agent: {bench.directory}/agent.lock was removed or replaced while the agent ran")
    assert first.returncode == 74
    assert not is_alive(worker)
    assert control.exits()["1-1-1"].outcome in ("preempted", "lost")  # its open spool still told the end
    second = await _agent_process(bench)
    await control.until(lambda: control.heartbeats[-1].spool_id != spool)
    assert control.heartbeats[-1].allocations == ()
    second.terminate()
    assert await second.wait() == 0


async def test_what_is_done_of_another_cluster_is_forgotten_and_what_is_not_ends_the_agent(bench: Bench) -> None:
    """Allocations of each cluster begin with 1-1-1."""
    control, done = bench.control, make_assignment(bench.context, mode="crash")
    first = await _agent_process(bench)
    for cluster in ("one", "other"):
        control.cluster = cluster
        control.reports.clear()
        await control.until(lambda: control.heartbeats)
        assert (await control.assign(done)).accepted
        await control.exit_of("1-1-1")
        await control.until(lambda: not control.heartbeats[-1].allocations and not control.heartbeats[-1].backlog)
    runs = make_assignment(bench.context, allocation=2)
    assert (await control.assign(done, runs)).accepted
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-2")
    control.cluster = "third"
    said = await _last_words(first)
    assert said.startswith(
        f"agent: {bench.directory} has runs or reports of another cluster that are not done: set TENUTO_AGENT_"
    )
    assert (first.returncode, is_alive(worker)) == (64, True)
    control.cluster = "other"
    second = await _agent_process(bench)
    seen = len(control.heartbeats)
    await control.until(lambda: len(control.heartbeats) > seen + 1)
    assert control.heartbeats[-1].allocations == ("1-1-2",)
    second.terminate()
    assert await second.wait() == 0


async def test_a_damaged_database_ends_the_agent_with_one_sentence(bench: Bench) -> None:
    control, database = bench.control, bench.directory / "agent.sqlite"
    first = await _agent_process(bench)
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(bench.context))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    first.kill()
    await first.communicate()
    for file in bench.directory.glob("agent.sqlite*"):
        file.write_bytes(b"\xa5" * max(8192, file.stat().st_size))
    second = await _agent_process(bench)
    said = await _last_words(second)
    assert said.startswith(f"agent: {database} is damaged (")
    assert f"mv {database} {database}.damaged" in said
    assert second.returncode == 64
    for file in bench.directory.glob("agent.sqlite*"):
        file.rename(file.with_name(f"{file.name}.damaged"))
    seen = len(control.heartbeats)
    third = await _agent_process(bench)
    await control.until(lambda: len(control.heartbeats) > seen + 1)
    assert not is_alive(worker)  # nobody owns it any more
    third.terminate()
    assert await third.wait() == 0


async def test_a_database_that_is_damaged_while_the_agent_runs_ends_it_and_its_workers(bench: Bench) -> None:
    control = bench.control
    agent = await _agent_process(bench)
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(bench.context))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    for file in bench.directory.glob("agent.sqlite*"):
        with file.open("r+b") as opened:
            opened.write(b"\xa5" * max(8192, file.stat().st_size))
    for length in range(30, 60, 2):  # until it meets the damage
        with contextlib.suppress(Exception):
            # Whoever ends between the question and the answer never gives one.
            again = make_assignment(bench.context).model_copy(update={"target_length": length})
            await asyncio.wait_for(control.assign(again), SECONDS_MAX)
        await asyncio.sleep(0.1)
        if agent.returncode is not None:
            break
    said = await _last_words(agent)
    assert said.startswith(f"agent: {bench.directory}/agent.sqlite "), said
    assert agent.returncode == 74
    assert not is_alive(worker)
