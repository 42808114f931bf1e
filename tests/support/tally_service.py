"""A service of its own process for fault tests: the tally core over the bus, with reports as commands, that kills itself.

`python tests/support/tally_service.py`, with TENUTO_... settings, TALLY_SEED, TALLY_LIFE (the number of those that ended
before it), and TALLY_DEATH: the probability of kill -9 before and after each step that it takes towards the log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import Append, Appended, EventLog, Snapshot
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import StreamFeed
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.received_reports import Report
from tenuto.kernel.service import run_service
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import run_together

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is started by its path
from tests.support.tally_core import Add, TallyCore

_chance = random.Random(f"{os.environ['TALLY_SEED']}/{os.environ['TALLY_LIFE']}")
_death = float(os.environ["TALLY_DEATH"])


def perhaps_die() -> None:
    if _chance.random() < _death:
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyLog:
    """Dies between the steps of a commit, a snapshot, a look at the checkpoint."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def append(self, batch: Append) -> Appended:
        perhaps_die()
        appended = await self._log.append(batch)
        perhaps_die()
        return appended

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        perhaps_die()
        await self._log.save_snapshot(snapshot)
        perhaps_die()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Service:
    def __init__(self, settings: Settings, log: PostgresEventLog, bus: Client, clock: Clock) -> None:
        deadly: Any = DeadlyLog(log)
        self._clock = clock
        self._loop = ServiceLoop(TallyCore(), deadly, StreamFeed(log, bus), clock, settings, checks=True)
        self._ingress = Ingress("tracker", settings, bus, log.pool, self._receive)

    def watched(self) -> MonitoredState:
        return self._loop.watched()

    async def run(self) -> None:
        await run_together(loop=self._loop.run(), ingress=self._ingress.run())

    async def _receive(self, reports: Sequence[Report]) -> None:
        commands = [Add(report.id, self._clock.now_us(), **json.loads(report.body)) for report in reports]
        perhaps_die()
        await self._loop.submit_many(commands)
        perhaps_die()


async def build(settings: Settings, log: EventLog, bus: Client, clock: Clock) -> Service:
    assert isinstance(log, PostgresEventLog)
    return Service(settings, log, bus, clock)


if __name__ == "__main__":
    run_service("tally", build)
