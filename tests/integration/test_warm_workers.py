"""Workers forked from a process that has imported torch, beside workers that are started: real agent, bus and harness."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.reports import LogsReport
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.runtimes import forks
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit_code
from tenuto.workers.agent.runtimes.forks import SPARE_PAIRS
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, Identity, _mark_of, marked
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.process.warm import WarmPool, WarmSpawned, Zygote
from tests.support import real_parts
from tests.support.control_plane import ControlPlane, agent_settings, make_assignment, make_config, make_context

LOOKS_AROUND = b"""
import json, os, random, signal, sys, threading
import numpy, torch
names = [t.name for t in threading.enumerate()]  # gRPC's own, as long as a request lasts, end with " (_run)"
print("seen " + json.dumps({
    "draws": [random.random(), numpy.random.random(), torch.rand(1).item()],
    "hash": hash("a"), "flags": repr(sys.flags), "path": sys.path[0], "cwd": os.getcwd(), "argv": sys.argv[1:],
    "threads": torch.get_num_threads(), "python_threads": sorted(n for n in names if not n.endswith(" (_run)")),
    "environment": {k: v for k, v in os.environ.items() if k not in ("TENUTO_TOKEN", "_", "SHLVL", "PWD", "OLDPWD")},
    "parent": os.getppid(), "group": os.getpgrp(), "umask": os.umask(0o22),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)],
    "stdin": os.readlink("/proc/self/fd/0"),
}))
"""
LEAVES_A_STRAY = b"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
raise ValueError("left one behind")
"""
SAYS_WHAT_IS_THERE = b"""
import json, sys
there = sorted({"torch", "tensorflow", "keras"} & set(sys.modules))
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(2)
draw = float(tf.random.uniform(()))
print("seen " + json.dumps({"there": there, "draw": draw, "threads": tf.config.threading.get_intra_op_parallelism_threads()}))
"""


@dataclass
class Bench:
    control: ControlPlane
    app: AgentApp
    shared: Path
    contexts: dict[bytes, str] = field(default_factory=dict)

    @property
    def warm(self) -> WarmPool:
        assert isinstance(self.app.runtime, ProcessRuntime)
        return self.app.runtime.warm

    async def run(self, body: bytes, number: int = 1, **changes: Any) -> str:
        """Trains a trial with that model_def.py to its end; returns its exit's sentence."""
        context = self.contexts.setdefault(body, "") or make_context(self.shared, body)
        self.contexts[body] = context
        assignment = make_assignment(context, allocation=number, **changes)
        await self.control.until(lambda: bool(self.control.heartbeats))
        await self.control.assign(assignment)
        report = await self.control.exit_of(f"1-1-{number}")
        await self.control.assign()
        return report.error or ""

    async def seen(self, runs: int) -> list[dict[str, Any]]:
        """Output of this number of runs; it may arrive after their exits."""
        await self.control.until(lambda: len(self._seen()) >= runs)
        return self._seen()

    def _seen(self) -> list[dict[str, Any]]:
        lines = [line.text for _, body in self.control.reports["logs"] for line in LogsReport.from_json(body).lines]
        return [json.loads(line.removeprefix("seen ")) for line in lines if line.startswith("seen ")]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a machine is so crowded that a fork takes seconds, a worker starts cold, rightly; here that would hide what is told
    apart."""
    monkeypatch.setattr(forks, "READY_SECONDS_MAX", 170.0)
    monkeypatch.setattr(forks, "FORK_SECONDS_MAX", 60.0)


@pytest.fixture
async def bench(nats: NatsServer, tmp_path: Path, patient: None) -> AsyncIterator[Bench]:
    settings = agent_settings(nats.url, tmp_path)
    control = ControlPlane(settings)
    await control.start()
    app = AgentApp(settings, SystemClock(), environment=dict(os.environ))  # pytest changes its own at every step
    await app.open()
    running = asyncio.create_task(app.run())
    yield Bench(control, app, tmp_path / "shared")
    await stop_task(running)
    await app.close()
    await control.stop()
    assert not marked(tmp_path / "agent")


async def test_a_warm_worker_finds_what_a_cold_one_finds(bench: Bench) -> None:
    for number in (1, 2):
        await bench.run(LOOKS_AROUND, number)
    assert bench.warm.forks == 2
    bench.warm._environments_max = 0
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as for an agent that nohup started
    try:
        await bench.run(LOOKS_AROUND, 3)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert bench.warm.forks == 2
    first, second, cold = await bench.seen(3)
    draws = [run.pop("draws") for run in (first, second, cold)]
    for n in range(3):
        assert len({draw[n] for draw in draws}) == 3, "each run begins with a state of its own"
    for run in (first, second, cold):
        assert run.pop("parent") == run.pop("group"), "its parent leads the run's process group"
        for name in ("TENUTO_ALLOCATION_ID", "TENUTO_ERROR_FILE", RUN_VARIABLE, "TMPDIR"):
            run["environment"][name] = run["environment"][name].rpartition("1-1-")[0]
    assert first == second == cold


async def test_another_environment_is_warmed_apart(bench: Bench) -> None:
    config = make_config(environment={"variables": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "WORD": "here"}})
    await bench.run(LOOKS_AROUND, 1)
    await bench.run(LOOKS_AROUND, 2, config=config)
    one, two = await bench.seen(2)
    assert (one["threads"], two["threads"]) == (1, 2)
    assert two["environment"]["WORD"] == "here"
    assert "WORD" not in one["environment"]
    assert bench.warm.forks == 2


async def test_a_keras_trial_starts_from_a_process_that_has_imported_tensorflow(bench: Bench) -> None:
    """Not where the code sets what TensorFlow reads when it is imported."""
    real_parts.package("tensorflow")
    await bench.run(SAYS_WHAT_IS_THERE, 1)
    await bench.run(SAYS_WHAT_IS_THERE, 2)
    await bench.run(b"import os; os.environ['KERAS_BACKEND'] = 'torch'\n" + SAYS_WHAT_IS_THERE, 3)
    first, second, sets = await bench.seen(3)
    draws = [run.pop("draw") for run in (first, second)]
    assert draws[0] != draws[1], "each run begins with a state of its own"
    for run in (first, second):
        assert run == {"there": ["keras", "tensorflow"], "threads": 2}
    assert sets["there"] == ["torch"]
    assert bench.warm.forks == 3
    assert len(bench.warm._zygotes) == 2


async def test_what_leaves_its_session_is_killed_with_its_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    kill_rest = processes.kill_rest

    async def noted(agent_directory: Path, allocation_id: str, members: Any) -> bool:
        searched.append(allocation_id)
        return await kill_rest(agent_directory, allocation_id, members)

    monkeypatch.setattr(processes, "kill_rest", noted)
    assert "left one behind" in await bench.run(LEAVES_A_STRAY)
    assert bench.warm.forks == 1
    assert not marked(bench.app._directory)
    await bench.run(LOOKS_AROUND, 2)
    assert bench.warm.forks == 2
    assert searched == ["1-1-1"], "the leader of the second run knew that nothing was left"


async def test_a_warm_process_that_was_killed_costs_a_cold_start_and_comes_back(bench: Bench) -> None:
    await bench.run(LOOKS_AROUND, 1)
    (zygote,) = bench.warm._zygotes.values()
    zygote._process.send_signal(signal.SIGKILL)
    zygote._process.wait()
    runs = 1 + SPARE_PAIRS + 2
    for number in range(2, runs + 1):  # pairs that it had forked ahead still serve, as many as there was time for
        await bench.run(LOOKS_AROUND, number)
    assert len(await bench.seen(runs)) == runs
    assert bench.warm.forks == runs - 1, "all but one of them"


async def test_one_that_was_abandoned_before_its_go_runs_nothing(tmp_path: Path) -> None:
    pool = WarmPool(tmp_path, 1)
    nobody = {
        "TENUTO_AGENT_ADDRESS": f"unix:{tmp_path}/no.sock",
        "TENUTO_ALLOCATION_ID": "1-1-1",
        "TENUTO_TOKEN": "t",
        "TENUTO_RANK": "0",
    }
    environment = {**os.environ, **nobody, RUN_VARIABLE: f"{tmp_path}:1-1-1"}
    files = RunFiles(tmp_path / "run")
    spawned = await pool.spawn(files, environment, tmp_path)
    assert spawned is not None
    mine = marked(tmp_path)
    assert spawned.identity.pid in mine
    assert [*mine.values()] == ["1-1-1", "1-1-1"], "the leader and its worker, before either has run anything"
    spawned.abandon()
    await processes.wait_gone(spawned.identity)
    assert not files.exit.exists()
    assert not marked(tmp_path), "its worker left before it"
    killed = await pool.spawn(files, environment, tmp_path)
    assert killed is not None
    processes.kill(killed.identity)
    await processes.wait_gone(Identity(killed.identity.pid, killed.identity.started))
    killed.go()
    assert not await killed.wait_ended(), "it cannot have said anything"
    await pool.close()
    assert not files.exit.exists()
    assert read_exit_code(files) is None


async def test_what_cannot_be_imported_is_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('no driver')\n")
    pool = WarmPool(tmp_path, 1)
    environment = {**os.environ, RUN_VARIABLE: f"{tmp_path}:1-1-1", "PYTHONPATH": str(tmp_path)}
    assert await pool.spawn(RunFiles(tmp_path / "run"), environment, tmp_path) is None
    assert pool.warm(environment) is None
    assert "no driver" in (tmp_path / "warm.log").read_text()
    await pool.close()


async def test_one_that_gives_way_while_it_imports_costs_a_cold_start(tmp_path: Path) -> None:
    pool = WarmPool(tmp_path, 1)

    async def start(name: str) -> WarmSpawned | None:
        environment = {**os.environ, RUN_VARIABLE: f"{tmp_path}:{name}", "WORD": name}
        return await pool.spawn(RunFiles(tmp_path / name), environment, tmp_path)

    first = asyncio.create_task(start("1-1-1"))
    await asyncio.sleep(0)  # it has begun to import
    second = asyncio.create_task(start("1-2-1"))
    assert await first is None, "a run that waits for it starts cold"
    spawned = await second
    assert spawned is not None
    spawned.abandon()
    await processes.wait_gone(spawned.identity)
    await pool.close()


async def test_the_next_run_is_forked_ahead(bench: Bench) -> None:
    await bench.run(LOOKS_AROUND, 1)
    (zygote,) = bench.warm._zygotes.values()
    for number, killed in ((2, False), (3, True)):
        zygote.stand_by()
        waiting = await _stand_by(zygote)
        if killed:
            for process in waiting:
                process.kill()
        await bench.run(LOOKS_AROUND, number)
        assert ((await bench.seen(number))[-1]["parent"] in {process.pid for process in waiting}) is not killed
    assert bench.warm.forks == 3
    zygote.stand_by()
    waiting = await _stand_by(zygote)
    await bench.warm.close()
    _, alive = psutil.wait_procs(waiting, timeout=60)
    assert not alive, "who stands by leaves with the agent"


async def _stand_by(zygote: Zygote) -> list[psutil.Process]:
    """The leaders that stand by, and their workers, once all are there."""
    while True:
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for leader in psutil.Process(zygote._process.pid).children():
                if not _mark_of(leader.pid).strip("-"):
                    found += [leader, *leader.children()]
        if len(found) == 2 * SPARE_PAIRS:
            return found
        await asyncio.sleep(0.01)  # a fork sets no event
