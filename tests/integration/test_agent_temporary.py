"""Files that a killed trial leaves in its temporary directory and in shared memory are removed with its allocation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.reports import LogsReport
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.rpc import WorkerDoor, WorkerServer
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tenuto.workers.agent.runtimes.private_directories import short_directory
from tenuto.workers.agent.runtimes.process.processes import marked
from tenuto.workers.agent.runtimes.process.scratch import PATH_BYTES_MAX, Scratch
from tests.support.control_plane import ControlPlane, agent_settings, make_assignment, make_config, make_context

MODEL = b"""
import json, multiprocessing.util, os, tempfile, threading
from multiprocessing.shared_memory import SharedMemory
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return torch.zeros(10_000)

batches = iter(DataLoader(Numbers(), num_workers=2))
kept = [next(batches) for _ in range(5)]
torch.multiprocessing.set_sharing_strategy("file_system")
named = iter(DataLoader(Numbers(), num_workers=1))
kept += [next(named) for _ in range(5)]
memory = SharedMemory(create=True, size=100)
print("seen " + json.dumps({
    "pid": os.getpid(), "directory": tempfile.gettempdir(), "found": sorted(os.listdir(tempfile.gettempdir())),
    "sockets": multiprocessing.util.get_temp_dir(), "memory": memory.name, "compiled": os.environ["TORCHINDUCTOR_CACHE_DIR"],
}), flush=True)
threading.Event().wait()
"""
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Bench:
    settings: Settings
    control: ControlPlane
    context: str
    own: Path
    """A short path: loaders make sockets in it, and pytest's own directories are long where it runs with several workers."""
    agents: list[tuple[AgentApp, asyncio.Task[None]]] = field(default_factory=list)

    async def start(self) -> AgentApp:
        app = AgentApp(self.settings, SystemClock(), environment=dict(os.environ))
        await app.open()
        self.agents.append((app, asyncio.create_task(app.run())))
        return app

    async def drop(self) -> None:
        app, running = self.agents.pop()
        await stop_task(running)
        await app.close()

    async def train(self, number: int, **changes: Any) -> dict[str, Any]:
        """Starts an allocation; returns what it saw once it trains."""
        await self.control.until(lambda: bool(self.control.heartbeats))
        await self.control.assign(make_assignment(self.context, allocation=number, **changes))
        name = f"1-1-{number}"
        await self.control.until(lambda: len(self.seen()) == number or name in self.control.exits())
        assert len(self.seen()) == number, (self.control.exits()[name], self.lines())
        return self.seen()[-1]

    def lines(self) -> list[str]:
        return [line.text for _, body in self.control.reports["logs"] for line in LogsReport.from_json(body).lines]

    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(line.removeprefix("seen ")) for line in self.lines() if line.startswith("seen ")]

    def pids(self) -> set[int]:
        return set(marked(Path(self.settings.agent_directory)))


@pytest.fixture
async def bench(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Bench]:
    settings = agent_settings(nats.url, tmp_path)
    control = ControlPlane(settings)
    await control.start()
    made = Bench(settings, control, make_context(tmp_path / "shared", MODEL), Path(tempfile.mkdtemp(prefix="own-")))
    yield made
    while made.agents:
        await made.drop()
    await control.stop()
    for pid in made.pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(short_directory(tmp_path / "agent"), ignore_errors=True)
    shutil.rmtree(made.own)


def in_memory(pids: set[int]) -> list[str]:
    return [path.name for path in SHARED_MEMORY.iterdir() if path.name.startswith(tuple(f"torch_{pid}_" for pid in pids))]


async def test_a_killed_trial_leaves_nothing_in_its_temporary_directory_nor_in_memory(bench: Bench) -> None:
    await bench.start()
    seen, pids = await bench.train(1), bench.pids()
    directory = Path(seen["directory"])
    assert any(name.startswith("pymp-") for name in seen["found"]), "its loaders' sockets are there"
    assert Path(seen["sockets"]).parent == directory
    assert directory.stat().st_mode & 0o077 == 0
    assert len(os.fsencode(directory)) <= PATH_BYTES_MAX
    assert not Path(seen["compiled"]).is_relative_to(directory), "the next trial finds what this one compiled"
    assert in_memory(pids)
    assert (SHARED_MEMORY / seen["memory"]).exists()
    os.kill(seen["pid"], signal.SIGKILL)
    assert (await bench.control.exit_of("1-1-1")).outcome == "lost"
    await bench.control.until(lambda: not directory.exists())
    assert not in_memory(pids)
    assert not (SHARED_MEMORY / seen["memory"]).exists()

    # The same where the agent kills it, and where the configuration has a directory of its own.
    own = bench.own
    seen = await bench.train(2, config=make_config(environment={"variables": {"TMPDIR": str(own)}}))
    pids = bench.pids()
    assert Path(seen["directory"]) == own
    assert in_memory(pids)
    await bench.control.assign()
    await bench.control.exit_of("1-1-2")
    assert own.exists()
    assert not in_memory(pids)
    assert not (SHARED_MEMORY / seen["memory"]).exists()


async def test_what_ended_without_an_agent_is_removed_by_the_next(bench: Bench) -> None:
    bench.settings = replace(bench.settings, warm_environments_max=0)
    await bench.start()
    seen = await bench.train(1)
    directory = Path(seen["directory"])
    left = [directory.parent / "9-9-9", Path(bench.settings.agent_directory) / "runs" / "9-9-9"]
    for path in left:
        (path / "file").mkdir(parents=True)
    await bench.drop()
    os.kill(seen["pid"], signal.SIGKILL)
    assert directory.exists()
    await bench.start()
    assert not any(path.exists() for path in left), "nobody knows that run any more"
    await bench.control.exit_of("1-1-1")
    await bench.control.until(lambda: not directory.exists())
    await bench.control.assign()
    await bench.drop()
    assert not directory.parent.parent.exists()


def test_it_is_in_the_run_s_directory_where_that_is_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scratch = Scratch(Path("agent"), {})
    path = scratch.make("1-1-1")
    assert path == Path("agent/runs/1-1-1/tmp")
    (path / "file").touch()
    scratch.remove("1-1-1")
    assert not path.exists()
    scratch = Scratch(Path("agent"), {"TMPDIR": "/fast"})
    elsewhere = scratch.make("1-1-1")
    assert not elsewhere.is_relative_to("agent"), "an agent that was given a temporary directory uses it for its runs"
    scratch.remove("1-1-1")
    scratch.close()
    assert not elsewhere.parent.parent.exists()


async def test_what_others_made_in_its_place_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everybody may write, another user may have made a link of that name, to some directory that has a `tmp`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    mine = tmp_path / "home" / "tmp" / "1-1-1" / "file"
    mine.parent.mkdir(parents=True)
    mine.touch()
    directory = tmp_path / ("deep" * 30)
    short_directory(directory).symlink_to(tmp_path / "home")
    scratch = Scratch(directory, {})
    assert scratch.make("1-1-1").is_relative_to(directory)
    scratch.sweep(())
    scratch.remove("1-1-1")
    scratch.close()
    assert mine.exists()
    with pytest.raises(OSError, match="not a directory that only this user can write to"):
        await WorkerServer(cast(WorkerDoor, None), UnixEndpoint(directory)).start()
