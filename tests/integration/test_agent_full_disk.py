"""An agent whose disk is full for a while or whose database is damaged still ends its workers: real processes, no bus."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from tenuto.embedded.process import is_alive
from tenuto.kernel.backoff import Backoff
from tenuto.kernel.clock import SystemClock
from tenuto.schemas.assignments import Assignment, Assignments
from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent import manager as manager_module
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.checked_settings import AgentError
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.live_run import RETRY_SECONDS, RETRY_SECONDS_MAX, LiveRun
from tenuto.workers.agent.runtimes.process import processes as processes_module
from tenuto.workers.launch.layout import RENDEZVOUS_FILE
from tests.support.control_plane import AGENT, agent_settings, make_assignment, make_context
from tests.support.waiting import SECONDS_MAX, until_on_loop

NEVER_LEAVES = ("/bin/sh", "-c", "trap '' TERM; while :; do sleep 60; done")


class FullDisk(Disk):
    """Refuses calls while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.refused = False, asyncio.Event()
        self.refuses = ""
        """The name of a call that is refused also while it is not full."""

    async def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.full or function.__name__ == self.refuses:
            self.refused.set()
            raise sqlite3.OperationalError("database or disk is full")
        return await super().__call__(function, *args, **kwargs)


class Rig:
    def __init__(self, directory: Path, grace_seconds: float) -> None:
        self.context = make_context(directory / "shared")
        settings = agent_settings("nats://127.0.0.1:1", directory, cpu_slots=2, preempt_grace_seconds_max=grace_seconds)
        self.app, self.disk, self._position = AgentApp(settings, SystemClock(), command=NEVER_LEAVES), FullDisk(), 0
        cast(Any, self.app)._disk = self.disk

    async def assign(self, *assignments: Assignment) -> str:
        self._position += 1
        return await self.app.manager.assign(Assignments(position=self._position, assignments=assignments))

    async def running(self, allocation_id: str) -> tuple[LiveRun, psutil.Process]:
        live = await until_on_loop(
            lambda: self.app.manager.live(allocation_id), lambda live: live is not None and live.run.phase == "running"
        )
        assert live is not None
        assert live.run.handle is not None
        return live, psutil.Process(processes_module.Identity.of(live.run.handle).pid)

    async def paused(self, live: LiveRun, pause_seconds: float = RETRY_SECONDS) -> None:
        """Waits until its task has met a full disk and pauses."""
        task = live.task
        assert task is not None
        live.backoff = Backoff(pause_seconds, pause_seconds)
        self.disk.full = True
        runtime = cast(Any, self.app.manager)._runtime
        with runtime.host.files(live.run.allocation_id).stdout.open("a") as file:
            file.write("a line\n")
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.wait({task})
        self.disk.full = False


async def until_gone(process: psutil.Process) -> None:
    await until_on_loop(lambda: not is_alive(process))  # another process ends


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path, grace_seconds=0.5)
    await rig.app.open()
    yield rig
    rig.disk.full = False
    await rig.app.manager.abandon()
    await rig.app.close()


async def test_a_worker_that_does_not_leave_is_killed_once_the_disk_takes_notes_again(rig: Rig) -> None:
    assignment = make_assignment(rig.context)
    await rig.assign(assignment)
    _, process = await rig.running("1-1-1")
    await rig.assign(assignment.model_copy(update={"action": "preempt"}))
    rig.disk.full = True
    rig.disk.refused.clear()
    await asyncio.wait_for(rig.disk.refused.wait(), SECONDS_MAX)
    assert is_alive(process)
    rig.disk.full = False
    await until_gone(process)


async def test_a_stop_on_a_full_disk_leaves_no_worker(rig: Rig) -> None:
    await rig.assign(make_assignment(rig.context), make_assignment(rig.context, trial=2, slots=(1,)))
    processes = [(await rig.running(allocation_id))[1] for allocation_id in ("1-1-1", "1-2-1")]
    rig.disk.full = True
    await rig.app.stop()
    for process in processes:
        await until_gone(process)


async def test_a_stop_does_not_wait_for_ever_for_a_run_that_pauses_after_an_error(rig: Rig) -> None:
    await rig.assign(make_assignment(rig.context))
    live, process = await rig.running("1-1-1")
    await rig.paused(live, RETRY_SECONDS_MAX)
    await asyncio.wait_for(rig.app.manager.stop(grace_seconds=0.1), SECONDS_MAX)
    assert not is_alive(process)
    assert not live.run.holds_slots  # its end is written down, not only brought about


async def test_a_stop_ends_where_the_ends_of_workers_cannot_be_written_down(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "KILLED_SECONDS_MAX", 0.5)
    await rig.assign(make_assignment(rig.context))
    _, process = await rig.running("1-1-1")
    rig.disk.refuses = "note_end"
    await asyncio.wait_for(rig.app.manager.stop(grace_seconds=0.1), SECONDS_MAX)
    await until_gone(process)


async def test_a_run_that_goes_on_after_an_error_pauses_only_briefly_at_the_next(rig: Rig) -> None:
    await rig.assign(make_assignment(rig.context))
    live, _ = await rig.running("1-1-1")
    await rig.paused(live)
    assert live.backoff.failures == 1
    await until_on_loop(lambda: not live.backoff.failures)
    assert live.run.phase == "running"


async def test_all_workers_are_ended_while_some_runs_are_forgotten(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.assign(make_assignment(rig.context), make_assignment(rig.context, trial=2, slots=(1,)))
    processes = [(await rig.running(allocation_id))[1] for allocation_id in ("1-1-1", "1-2-1")]
    manager = cast(Any, rig.app.manager)
    lives, kill_rest = manager._live, processes_module.kill_rest
    first = next(iter(lives))

    async def forgetting(directory: Path, allocation_id: str, members: Any) -> bool:
        lives.pop(first, None)
        return await kill_rest(directory, allocation_id, members)

    monkeypatch.setattr(processes_module, "kill_rest", forgetting)
    await rig.app.manager.abandon()
    for process in processes:
        await until_gone(process)


async def test_where_rank_0_listens_is_reported_once_the_disk_takes_it(rig: Rig, tmp_path: Path) -> None:
    parts = (AgentSlots(agent_id=AGENT, slot_ids=(0,)), AgentSlots(agent_id="node-2", slot_ids=(0,)))
    manager = cast(Any, rig.app.manager)
    assignment = make_assignment(rig.context).model_copy(update={"slots": parts})
    live = LiveRun(cast(Any, await rig.disk(manager._runs.add, assignment, "token", None)))
    directory = manager._runtime.host.files("1-1-1").directory
    directory.mkdir(parents=True)
    (directory / RENDEZVOUS_FILE).write_text("127.0.0.1:1")
    rig.disk.full = True
    telling = asyncio.create_task(manager._reports.rendezvous(live))
    await asyncio.wait_for(rig.disk.refused.wait(), SECONDS_MAX)
    rig.disk.full = False
    await asyncio.wait_for(telling, SECONDS_MAX)
    assert await rig.disk(manager._reports._spool.waiting, "launcher", "1-1-1") == 1


async def test_a_database_that_is_damaged_in_the_middle_is_told_in_one_sentence(tmp_path: Path) -> None:
    rig = Rig(tmp_path, grace_seconds=1.0)
    await rig.app.open()
    database = tmp_path / "agent" / "agent.sqlite"
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO report_tokens VALUES (?, ?)", [(f"9-{number}-1", "t" * 500) for number in range(200)])
    connection.close()
    await rig.app.close()
    with database.open("r+b") as file:
        file.seek(-40_000, 2)
        file.write(b"\xa5" * 8192)
    again = Rig(tmp_path, grace_seconds=1.0)
    with pytest.raises(AgentError, match="is damaged"):
        await again.app.open()
    await again.app.close()
