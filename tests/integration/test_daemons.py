"""What a trial leaves behind: daemons in sessions of their own, without a variable of the run, end with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.process.warm import Zygote
from tenuto.workers.agent.runtimes.runtime import Handle
from tenuto.workers.harness.fork_orders import ForkOrder
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE
from tests.support.runtimes import make_runtime, work_of
from tests.support.waiting import SECONDS_MAX, until_on_loop

ROOT = Path(__file__).parents[2]
STARTS_DAEMONS = """
import os, sys, time
places = sys.argv[1:]
for place in places:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            says = f"echo $$ >{place}.new; mv {place}.new {place}; trap : TERM; while :; do sleep 600; done"
            os.execve("/bin/sh", ["sh", "-c", says], {})
        os._exit(0)
    os.wait()
while not all(map(os.path.exists, places)):
    time.sleep(0.01)
"""
STAYS = f"{STARTS_DAEMONS}time.sleep(600)\n"
WAITS = f"{STARTS_DAEMONS}while not os.path.exists(places[0] + '.end'):\n    time.sleep(0.01)\n"


class Trial:
    """One that starts two daemons, in a cold worker."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.context = directory, directory / "agent" / "contexts" / ("0" * 64)
        self.context.mkdir(parents=True)
        self.places = [directory / "first", directory / "second"]

    def command(self, code: str) -> tuple[str, ...]:
        return (sys.executable, "-c", code, *map(str, self.places))

    async def open(self, code: str = "") -> ProcessRuntime:
        runtime = make_runtime("process", self.directory, self.command(code))
        assert isinstance(runtime, ProcessRuntime)
        await runtime.open()
        return runtime

    async def begin(self, runtime: ProcessRuntime) -> Handle:
        work = work_of(self.context)
        await runtime.prepare(work)
        handle = await runtime.start(work)
        await runtime.go(handle)
        return handle

    async def daemons(self) -> list[psutil.Process]:
        await until_on_loop(lambda: all(place.exists() for place in self.places))
        found = [psutil.Process(int(place.read_text())) for place in self.places]
        for daemon in found:
            assert RUN_VARIABLE not in daemon.environ()
        return found


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    found = Trial(tmp_path)
    yield found
    for place in found.places:  # nothing else would find one that is left
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            psutil.Process(int(place.read_text())).kill()


async def test_they_end_with_a_trial_that_ends(trial: Trial) -> None:
    runtime = await trial.open(WAITS)
    handle = await trial.begin(runtime)
    daemons = await trial.daemons()
    Path(f"{trial.places[0]}.end").touch()
    async with asyncio.timeout(SECONDS_MAX):
        assert (await runtime.wait("1-1-1", handle)).code == 0
    assert not [daemon for daemon in daemons if daemon.is_running()]
    await runtime.close()


async def test_they_end_with_a_trial_that_is_killed(trial: Trial) -> None:
    runtime = await trial.open(STAYS)
    handle = await trial.begin(runtime)
    daemons = await trial.daemons()
    await runtime.kill(handle)
    async with asyncio.timeout(SECONDS_MAX):
        assert (await runtime.wait("1-1-1", handle)).code is None
    _, alive = psutil.wait_procs(daemons, timeout=SECONDS_MAX)
    assert not alive
    await runtime.close()


AGENT_THAT_DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.integration.test_daemons import Trial, WAITS, STAYS

async def main():
    trial = Trial.__new__(Trial)
    trial.directory = Path(sys.argv[1])
    trial.context = trial.directory / "agent" / "contexts" / ("0" * 64)
    trial.places = [trial.directory / "first", trial.directory / "second"]
    print(await trial.begin(await trial.open({"WAITS": WAITS, "STAYS": STAYS}[sys.argv[2]])), flush=True)
    await trial.daemons()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("ending", ["ends before", "ends", "killed"])
async def test_they_end_though_the_agent_was_killed_meanwhile(trial: Trial, ending: str) -> None:
    kind = "STAYS" if ending == "killed" else "WAITS"
    command = [sys.executable, "-c", AGENT_THAT_DIES, str(trial.directory), kind]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == -signal.SIGKILL, done.stderr
    handle = Handle(done.stdout.strip())
    daemons = await trial.daemons()
    if ending == "ends before":  # and nobody is there to kill anything
        Path(f"{trial.places[0]}.end").touch()
        _, alive = await asyncio.to_thread(psutil.wait_procs, daemons, SECONDS_MAX)
        assert not alive
    runtime = await trial.open()
    Path(f"{trial.places[0]}.end").touch()
    if ending == "killed":
        await runtime.kill(handle)
    async with asyncio.timeout(SECONDS_MAX):
        assert (await runtime.wait("1-1-1", handle)).code == (None if ending == "killed" else 0)
    _, alive = psutil.wait_procs(daemons, timeout=SECONDS_MAX)
    assert not alive
    await runtime.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_they_end_with_a_warm_worker(trial: Trial, killed: bool) -> None:
    """Its leader is forked from a process that has imported what trials need."""
    zygote = Zygote({**os.environ, FRAMEWORK_VARIABLE: "pytorch"}, trial.directory / "log")
    assert await zygote.ready()
    files = RunFiles(trial.directory)
    job = ForkOrder(
        environment=dict(os.environ), cwd=str(trial.context), mark=f"{trial.directory}:1-1-1", exit_file=str(files.exit),
        stdout=str(files.stdout), stderr=str(files.stderr), command=[*trial.command(STAYS if killed else WAITS)],
    )  # fmt: skip
    spawned = await zygote.fork(job)
    spawned.go()
    daemons = await trial.daemons()
    Path(f"{trial.places[0]}.end").touch()
    if killed:
        processes.kill(spawned.identity)
    async with asyncio.timeout(SECONDS_MAX):
        assert await spawned.wait_ended() is not killed
    if not killed:
        assert not [daemon for daemon in daemons if daemon.is_running()]
    _, alive = psutil.wait_procs(daemons, timeout=SECONDS_MAX)
    assert not alive
    await zygote.close()
