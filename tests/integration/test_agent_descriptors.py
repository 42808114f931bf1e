"""An agent without free file descriptors loses no worker and no order to kill one: it looks again when it has some."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.workers.agent.runtimes.files import RunFiles, read_exit
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.processes import Identity
from tests.support.runtimes import make_runtime, shell
from tests.support.waiting import SECONDS_MAX


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """For the test's own process: files that are open stay so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def sleeper() -> Iterator[Identity]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        started = processes.start_time(process.pid)
        assert started is not None
        yield Identity(process.pid, started)
    finally:
        process.kill()
        process.wait()


async def test_a_worker_that_runs_is_not_taken_for_gone() -> None:
    with sleeper() as identity:
        with no_descriptor_left():
            assert processes.is_alive(identity)
            gone = asyncio.create_task(processes.wait_gone(identity))
            done, _ = await asyncio.wait({gone}, timeout=3 * processes.POLL_SECONDS)
            assert not done
        processes.kill(identity)
        await asyncio.wait_for(gone, SECONDS_MAX)


async def test_an_exit_that_cannot_be_read_is_no_kill(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.exit.write_text("0\n")
    with no_descriptor_left(), pytest.raises(OSError, match="Too many open files"):
        read_exit(files)
    assert read_exit(files).code == 0


async def test_an_order_to_kill_is_carried_out_once_there_are_some(tmp_path: Path) -> None:
    runtime = make_runtime("process", tmp_path, shell("exit 0"))
    with sleeper() as identity:
        with no_descriptor_left():
            killing = asyncio.create_task(runtime.kill(identity.handle))
            await asyncio.sleep(0)  # it has tried by then
            assert not killing.done()
        await asyncio.wait_for(killing, SECONDS_MAX)
        await asyncio.wait_for(processes.wait_gone(identity), SECONDS_MAX)
    await runtime.close()
