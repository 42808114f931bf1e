"""Warm containers on a real Docker daemon: what runs that follow each other in one see of each other, and what becomes of it.

What warm and cold starts have in common is in tests/contract/test_runtime.py."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.reports import LogsReport
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.runtimes import forks
from tenuto.workers.agent.runtimes.combined_runtime import SeveralRuntimes
from tenuto.workers.agent.runtimes.docker import warm, warm_container, warm_description
from tenuto.workers.agent.runtimes.docker.container_errors import out_of_memory
from tenuto.workers.agent.runtimes.docker.description import ContainerLimits
from tenuto.workers.agent.runtimes.runtime import Exit, Handle
from tenuto.workers.endings import Ending
from tests.support import docker_daemon as support
from tests.support.control_plane import ControlPlane, agent_settings, make_assignment, make_config, make_context
from tests.support.docker_daemon import Daemon
from tests.support.runtimes import DOCKER_URL, InWarmImage, in_image, is_warm, make_runtime, shell, work_of
from tests.support.waiting import SECONDS_MAX

pytestmark = pytest.mark.real_part(support.lack())
ROOT = Path(__file__).parents[2]
LOOKS_AND_LEAVES = """
import json, os, sys
places = ("/tmp", "/dev/shm", os.environ["TMPDIR"])
seen = {"mounts": [line.split()[4] for line in open("/proc/self/mountinfo")], "here": [os.listdir(path) for path in places]}
seen["around"] = [os.listdir(os.path.dirname(path)) for path in (os.getcwd(), os.environ["TENUTO_ERROR_FILE"].rpartition("/")[0])]
try:
    open("written", "w")
except OSError as error:
    seen["own code"] = error.strerror
try:
    open("/proc/%d/mem" % os.getppid(), "r+b")
except OSError as error:
    seen["its leader"] = error.strerror
for path in places:
    try:
        open(os.path.join(path, "left"), "w")
    except OSError:
        pass
print(json.dumps(seen))
"""
CLOSES_AND_PILES_UP = """
import json, os
print(json.dumps({"found": os.listdir("/tmp") + os.listdir("/dev/mqueue")}))
open("/dev/mqueue/queue", "w")
for top in ("/tmp", os.environ["TMPDIR"]):
    os.chdir(top)
    os.makedirs("closed/inside/below")
    for path in ("closed/inside/below", "closed/inside", "closed"):
        os.chmod(path, 0)
    for name in ["deep", *["d"] * 1500]:
        os.mkdir(name)
        os.chdir(name)
os.chdir("/")
"""
STOPS_OTHERS = """
import os, signal
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid(), os.getppid()):
        try:
            os.kill(int(name), signal.SIGSTOP)
        except ProcessLookupError:
            pass
"""
# Threads named `_run` are gRPC's, which come and go with its calls.
LOOKS_AROUND = b"""
import json, os, random, signal, sys, threading
import numpy, torch
names = [thread.name for thread in threading.enumerate()]
print("seen " + json.dumps({
    "draws": [random.random(), numpy.random.random(), torch.rand(1).item()],
    "hash": hash("a"), "flags": repr(sys.flags), "path": sys.path, "cwd": os.getcwd(), "argv": sys.argv[1:],
    "threads": torch.get_num_threads(), "python_threads": sorted(n for n in names if not n.endswith(" (_run)")),
    "environment": {k: v for k, v in os.environ.items() if k not in ("TENUTO_TOKEN", "_", "HOSTNAME")},
    "umask": os.umask(0o22), "user": [os.getuid(), os.getgid(), os.getgroups()],
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)],
    "stdin": os.readlink("/proc/self/fd/0"), "capabilities": [l for l in open("/proc/self/status") if l.startswith("Cap")],
}))
"""


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory, self.context = directory, directory / "agent" / "contexts" / ("0" * 64)
        self.context.mkdir(parents=True)
        self.runtime = self.make("true")

    def make(self, *command: str) -> InWarmImage:
        runtime = make_runtime("docker-warm", self.directory, command)
        assert isinstance(runtime, InWarmImage)
        return runtime

    async def open(self, *command: str) -> InWarmImage:
        await self.runtime.close()
        self.runtime = self.make(*command)
        await self.runtime.open()
        return self.runtime

    async def begin(self, assignment: Assignment, told: Ending | None = None) -> Handle:
        work = work_of(self.context, assignment)
        await self.runtime.prepare(work)
        handle = await self.runtime.start(work)
        if told is not None:
            self.runtime.note_told(work.allocation_id, told)
        await self.runtime.go(handle)
        return handle

    async def run(self, allocation_id: str = "1-1-1", told: Ending | None = "finished") -> tuple[Handle, Exit]:
        experiment, trial, _ = map(int, allocation_id.split("-"))
        assignment = make_assignment("0" * 64, trial=trial)
        ids = {"trial_id": f"{experiment}-{trial}", "allocation_id": allocation_id}
        handle = await self.begin(assignment.model_copy(update=ids), told)
        async with asyncio.timeout(SECONDS_MAX):
            return handle, await self.runtime.wait(allocation_id, handle)

    async def run_two(self) -> tuple[Handle, Handle]:
        """Runs of one experiment; no further container is made beside the second."""
        first, ended = await self.run("1-1-1")
        assert ended == Exit(0), await self.runtime.output("1-1-1", None, (0, 0), final=True)
        self.runtime.ahead = False
        second, _ = await self.run("1-2-1")
        return first, second

    async def seen(self, allocation_id: str) -> dict[str, Any]:
        found = await self.runtime.output(allocation_id, None, (0, 0), final=True)
        seen: dict[str, Any] = json.loads(found.stdout[0])
        return seen


@pytest.fixture
async def bench(docker_daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv(DOCKER_URL, docker_daemon.url)
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", SECONDS_MAX)  # a busy machine's late fork is a cold start, rightly
    monkeypatch.setattr(warm, "MAKE_AFTER_SECONDS", 600.0)  # none but those that a test makes
    bench = Bench(tmp_path)
    yield bench
    await bench.runtime.sweep(set())
    await bench.runtime.close()
    assert not containers(docker_daemon, tmp_path), "nothing is left behind"
    assert not list((tmp_path / "agent" / "warm").iterdir())


def containers(daemon: Daemon, directory: Path, *, running: bool = False) -> list[str]:
    found = daemon.client.containers(all=not running, filters={"label": f"tenuto.agent={directory / 'agent'}"})
    return [item["Id"] for item in found]


def container_of(handle: Handle) -> str:
    assert is_warm(handle)
    return handle.partition("/")[0]


async def test_runs_that_follow_each_other_in_a_container_see_nothing_of_each_other(bench: Bench) -> None:
    """And runs of another experiment are in another one."""
    runtime = await bench.open("python3", "-c", LOOKS_AND_LEAVES)
    first, second = await bench.run_two()
    runtime.ahead = True
    third, _ = await bench.run("2-1-1")
    assert container_of(first) == container_of(second) != container_of(third)
    for allocation_id, others in (("1-1-1", "1-2"), ("1-2-1", "1-1"), ("2-1-1", "1-")):
        seen = await bench.seen(allocation_id)
        own = [path for path in seen["mounts"] if path.startswith(str(bench.directory))]
        assert any(path.endswith(f"containers/{allocation_id}") for path in own)
        assert any(path.endswith(f"/{allocation_id.rpartition('-')[0]}") for path in own), "its checkpoints"
        assert not [path for path in own if f"/{others}" in path]
        assert seen["around"] == [["0" * 64], [allocation_id]]
        assert not [path for path in seen["here"] if "left" in path], "what others left is gone"
        assert (seen["own code"], seen["its leader"]) == ("Read-only file system", "Permission denied")
    await runtime.kill(first)
    assert await runtime.kill_all("1-1-1"), "what is done to a run that has ended is not done to its container"
    runtime.ahead = False
    assert container_of((await bench.run("2-2-1"))[0]) == container_of(third)


async def test_a_run_that_fails_takes_its_container_with_it(bench: Bench, docker_daemon: Daemon) -> None:
    runtime = await bench.open(*shell("(setsid sleep 600 &); [ $TENUTO_ALLOCATION_ID = 1-1-1 ] && exit 0; exit 1"))
    for allocation_id, told in (("1-1-1", "finished"), ("1-2-1", "failed")):
        handle, _ = await bench.run(allocation_id, cast(Ending, told))
        assert container_of(handle).removeprefix("container:") not in containers(docker_daemon, bench.directory, running=True)
        await runtime.clean(allocation_id)
    runtime.ahead = False
    handle, ended = await bench.run("1-3-1")
    assert (is_warm(handle), ended.code) == (False, 1), "without a warm container it starts cold"


@pytest.mark.parametrize("code", [0, 80, 81, 82])
async def test_a_run_that_tells_nothing_takes_its_container_with_it(bench: Bench, docker_daemon: Daemon, code: int) -> None:
    await bench.open(*shell(f"exit {code}"))
    handle, ended = await bench.run(told=None)
    assert (is_warm(handle), ended.code) == (True, code)
    assert container_of(handle).removeprefix("container:") not in containers(docker_daemon, bench.directory, running=True)


async def test_what_a_run_has_closed_or_piled_up_is_removed_as_well(bench: Bench) -> None:
    runtime = await bench.open("python3", "-c", CLOSES_AND_PILES_UP)
    first, second = await bench.run_two()
    assert container_of(first) == container_of(second)
    assert set((await bench.seen("1-2-1"))["found"]) & {"closed", "deep", "queue"} == set()
    for allocation_id in ("1-1-1", "1-2-1"):
        await runtime.clean(allocation_id)
    assert not list((bench.directory / "agent" / "containers").iterdir())


async def test_a_container_that_cannot_be_removed_holds_up_no_other(
    bench: Bench, docker_daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await bench.open(*shell("exit 1"))
    for allocation_id in ("1-1-1", "1-2-1", "1-3-1"):
        await bench.run(allocation_id, "failed")
    stuck = containers(docker_daemon, bench.directory)[1]
    remove = runtime._engine.remove

    async def cannot_all(container: str) -> None:
        if container == stuck:
            raise OSError("tried to kill container, but did not receive an exit event")
        await remove(container)

    monkeypatch.setattr(runtime._engine, "remove", cannot_all)
    await runtime.sweep(set())
    assert containers(docker_daemon, bench.directory) == [stuck]
    monkeypatch.undo()
    await runtime._tidy()
    assert not containers(docker_daemon, bench.directory)


async def test_a_node_without_free_processors_gets_its_warm_containers_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_container, "READY_SECONDS_MAX", 0.001)
    runtime = await bench.open(*shell("exit 0"))
    runtime.ahead = False
    assignment = make_assignment("0" * 64)
    work = in_image(work_of(bench.context, assignment))
    await runtime.prepare(work)
    prepared = runtime._prepared[work.allocation_id]
    recipe = runtime.warm.recipe(runtime._facts, work, *prepared, runtime.files(work.allocation_id))
    assert recipe is not None
    await runtime.warm.containers.make(recipe)
    assert 0 < runtime.warm.containers._failed[recipe.key] < math.inf


async def test_the_limit_of_memory_holds_in_a_warm_container(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_description, "MEMORY_BYTES_MIN", 0)
    runtime = await bench.open("python3", "-c", "b'x' * (1 << 30)")
    runtime._facts = replace(runtime._facts, limits=ContainerLimits(300 << 20))
    handle, ended = await bench.run(told=None)
    assert (is_warm(handle), ended) == (True, Exit(128 + signal.SIGKILL, out_of_memory(300 << 20), out_of_memory=True))


async def test_a_run_that_stops_the_warm_process_costs_a_cold_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = await bench.open("python3", "-c", STOPS_OTHERS)
    _, ended = await bench.run("1-1-1")
    assert ended == Exit(0)
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", 0.5)
    runtime.ahead = False
    handle, ended = await bench.run("1-2-1")
    assert (is_warm(handle), ended) == (False, Exit(0))


async def test_a_run_that_kills_all_others_ends_alone(bench: Bench) -> None:
    await bench.open("python3", "-c", "import os; os.kill(-1, 9); import time; time.sleep(600)")
    handle, ended = await bench.run()
    assert (is_warm(handle), ended.code in (None, 128 + signal.SIGKILL)) == (True, True)
    assert await bench.runtime.find() == {}


async def test_a_warm_container_without_an_agent_ends_by_itself(bench: Bench, docker_daemon: Daemon) -> None:
    command = ("-m", "tests.support.runtimes", "docker-warm", str(bench.directory), str(bench.context), "")
    agent = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    await agent.communicate()
    assert agent.returncode == -signal.SIGKILL
    [left] = containers(docker_daemon, bench.directory)
    async with asyncio.timeout(SECONDS_MAX):
        while containers(docker_daemon, bench.directory, running=True):  # noqa: ASYNC110 - the daemon's client does not await
            await asyncio.sleep(0.05)
    runtime = await bench.open(*shell("exit 0"))
    assert await runtime.find() == {}
    await runtime.sweep(set())
    assert left not in containers(docker_daemon, bench.directory)


async def test_a_worker_in_a_warm_container_finds_what_one_in_a_cold_one_finds(
    nats: NatsServer, docker_daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "MAKE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", SECONDS_MAX)
    settings = replace(
        agent_settings(nats.url, tmp_path),
        docker_url=docker_daemon.url,
        docker_mounts=",".join(support.mounts()),
        docker_network="none",
        warm_environments_max=0,
    )
    control = ControlPlane(settings)
    await control.start()
    app = AgentApp(settings, SystemClock(), environment=dict(os.environ))
    await app.open()
    running = asyncio.create_task(app.run())
    runtime = app.runtime
    assert isinstance(runtime, SeveralRuntimes)
    containers = runtime.all[1].warm.containers
    context = make_context(tmp_path / "shared", LOOKS_AROUND)
    config = make_config(environment=support.environment() | {"variables": {"WORD": "here", "PYTHONPATH": "/elsewhere"}})
    try:
        await control.until(lambda: bool(control.heartbeats))
        for number in (1, 2, 3):
            await control.assign(make_assignment(context, allocation=number, config=config))
            await control.exit_of(f"1-1-{number}")
            await control.assign()
            await control.until(lambda: bool(containers._idle) or not (containers._busy or containers._making))
        await control.until(lambda: len(_printed(control)) == 3)
    finally:
        await stop_task(running)
        await app.close()
        await control.stop()
    cold, first, second = _printed(control)
    assert containers.starts == 2
    for n in range(3):
        assert len({run["draws"][n] for run in (cold, first, second)}) == 3, "each run begins with a state of its own"
    for run in (cold, first, second):
        del run["draws"]
        for name in ("TENUTO_ALLOCATION_ID", "TENUTO_ERROR_FILE"):
            run["environment"][name] = run["environment"][name].rpartition("1-1-")[0]
        for name in ("TMPDIR", "HOME"):  # the same for all runs of a warm container
            run["environment"][name] = "tenuto" in run["environment"][name]
    assert cold == first == second


def _printed(control: ControlPlane) -> list[dict[str, Any]]:
    lines = [line.text for _, body in control.reports["logs"] for line in LogsReport.from_json(body).lines]
    return [json.loads(line.removeprefix("seen ")) for line in lines if line.startswith("seen ")]
