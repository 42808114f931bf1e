"""The agent in the test's own process, with fake workers and a stand-in for the control plane on a real bus."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.runtimes.private_directories import short_directory
from tenuto.workers.agent.runtimes.process.processes import marked
from tests.support.control_plane import ControlPlane, agent_settings, make_context

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@dataclass
class Bench:
    settings: Settings
    control: ControlPlane
    context: str
    start: Callable[..., Awaitable[Agent]]

    @property
    def directory(self) -> Path:
        return Path(self.settings.agent_directory)

    def workers(self, allocation_id: str) -> list[psutil.Process]:
        """The worker processes of a run, not the leader of their session."""
        found = []
        for pid, owner in marked(self.directory).items():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                process = psutil.Process(pid)
                if owner == allocation_id and "fake_worker.py" in " ".join(process.cmdline()) and os.getsid(pid) != pid:
                    found.append(process)
        return found


class Agent:
    """An agent in this process; `drop` lets go of it as a crash would, `end` stops it in order."""

    def __init__(self, app: AgentApp, running: asyncio.Task[None]) -> None:
        self.app, self.running = app, running

    async def drop(self) -> None:
        await stop_task(self.running)
        await self.app.close()


@asynccontextmanager
async def agent_bench(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Bench]:
    """What it started is ended with it."""
    settings = agent_settings(nats.url, tmp_path, cpu_slots=2, preempt_grace_seconds_max=20.0)
    context = make_context(tmp_path / "shared")
    control = ControlPlane(settings)
    await control.start()
    started: list[Agent] = []

    async def start(**changes: object) -> Agent:
        app = AgentApp(replace(settings, **changes), SystemClock(), command=COMMAND)  # type: ignore[arg-type]
        await app.open()
        agent = Agent(app, asyncio.create_task(app.run()))
        started.append(agent)
        return agent

    yield Bench(settings, control, context, start)
    for agent in started:
        await agent.drop()
    await control.stop()
    for pid in marked(tmp_path / "agent"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(short_directory(tmp_path / "agent"), ignore_errors=True)
