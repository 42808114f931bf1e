"""The launcher's own loop, core and keepers of one pool, over a log in memory and a provider of the test's; it can be killed at
any moment, and the next one goes on from the log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import run_together, stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import CapacityDemand, CapacityWanted
from tenuto.schemas.ids import name_id
from tenuto.schemas.node_tokens import NodeTokenAnswer
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects import keepers, nodes
from tenuto.services.launcher.effects.keepers import Keepers
from tenuto.services.launcher.policies.provisioning import limits
from tenuto.services.launcher.state import State
from tests.support.memory_log import MemoryEventLog

TOKEN = "tenuto-join-a-secret"
SECONDS_MAX, LIFE_SECONDS_MAX = 120.0, 5.0


class Bus:
    """The gateway's answer to the launcher's question for a token."""

    def __init__(self) -> None:
        self._given = 0

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _: str) -> Bus:
        return self

    async def publish(self, *_: object, **__: object) -> None: ...

    async def next_msg(self, _: float) -> Any:
        self._given += 1
        return SimpleNamespace(data=NodeTokenAnswer(token=f"{TOKEN}-{self._given}").to_json(), headers=None)

    async def unsubscribe(self) -> None: ...


class KeptNodes:
    def __init__(self, pool: str, open_provisioner: Callable[[str, Provisioning], Provisioner]) -> None:
        self.pool, self._open = pool, open_provisioner
        self.log, self._clock, self._bus, self._said = MemoryEventLog(), SystemClock(), Bus(), 0

    async def say(self, data: EventData) -> None:
        self._said += 1
        event = Event(
            id=name_id("said", str(self._said)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self._clock.now_us(), payload=data.to_json(), actor="tests/1",
        )  # fmt: skip
        await self.log.append(Append(events=(event,)))

    async def want(self, *slots: int) -> None:
        """What waits: one gang for each number of slots."""
        demands = tuple(CapacityDemand(slots=number, count=1, experiment_id=at + 1) for at, number in enumerate(slots))
        await self.say(CapacityWanted(pool=self.pool, demands=demands))

    @asynccontextmanager
    async def launcher(self) -> AsyncIterator[ServiceLoop[State]]:
        """Ended as it stands."""
        loop = ServiceLoop(LauncherCore(), self.log, LogFeed(self.log), self._clock, Settings(), checks=True)
        self.keepers = kept = Keepers(loop, self.log, self._bus, self._clock, self._open)  # type: ignore[arg-type]
        task = asyncio.create_task(run_together(loop=loop.run(), nodes=kept.run()))
        try:
            yield loop
            assert not task.done() or task.result() is None
        finally:
            await stop_task(task)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of the launcher's are short."""
    for module, name, seconds in (
        (nodes, "POLL_SECONDS", 0.1), (nodes, "PAUSE_SECONDS_MIN", 0.03), (nodes, "TROUBLE_SECONDS_FIRST", 0.03),
        (nodes, "TROUBLE_SECONDS_MAX", 0.1), (keepers, "POLL_SECONDS", 0.05), (limits, "BACKOFF_SECONDS", 0.1),
        (limits, "BACKOFF_SECONDS_MAX", 0.3),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)


async def until(what: Callable[[], object], threaded: bool = False) -> None:
    """`threaded`: `what` asks the provider over HTTP, which blocks."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if await asyncio.to_thread(what) if threaded else what():
                return
            await asyncio.sleep(0.05)


async def asked_more(asked: Sequence[str], drawn: random.Random) -> None:
    """Until the provider was asked some more, on a slow machine as on a quick one; then a moment, so that a question may be under
    way. Most lives are short, as most that can go wrong is in the first look and the starts after it."""
    enough = len(asked) + round(12 * drawn.random() ** 3)
    with contextlib.suppress(TimeoutError):  # the launcher has nothing to ask
        async with asyncio.timeout(LIFE_SECONDS_MAX):
            while len(asked) < enough:  # noqa: ASYNC110 - the provider's list of questions
                await asyncio.sleep(0.01)
    await asyncio.sleep(drawn.uniform(0, 0.05))
