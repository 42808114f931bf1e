"""One lane of reports on real NATS and PostgreSQL: who sends as an agent does, and a receiver that keeps what it gets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg

from tenuto.kernel import bus as bus_module
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.received_reports import Poison, Report
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.reports import HEADER_AGENT, HEADER_KIND, HEADER_SEQUENCE, HEADER_SPOOL, Committed
from tests.support.waiting import SECONDS_MAX

AGENT, SPOOL = "node.1", "spool-a"


class Receiver:
    """Keeps what was received; `faults` are raised in turn before that."""

    def __init__(self, *faults: Exception | None) -> None:
        self.reports: list[Report] = []
        self.batches: list[list[bytes]] = []
        self.faults = list(faults)
        self.poison: set[bytes] = set()
        self.defects: set[bytes] = set()
        self._moved = asyncio.Event()

    async def __call__(self, reports: Sequence[Report]) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        for report in reports:
            if report.body in self.poison:
                raise Poison(report, "it smells")
            if report.body in self.defects:
                raise ZeroDivisionError("a defect")
        self.reports.extend(reports)
        self.batches.append([report.body for report in reports])
        self._moved.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len(self.bodies) < count:
                self._moved.clear()
                await self._moved.wait()

    @property
    def bodies(self) -> list[bytes]:
        """Without repetitions: a receiver recognises a repeated report by its id."""
        return list({report.id: report.body for report in self.reports}.values())


class Setup:
    def __init__(self, settings: Settings, client: bus_module.Client, pool: asyncpg.Pool) -> None:
        self.settings, self.client, self.pool = settings, client, pool
        self.told: asyncio.Queue[Committed] = asyncio.Queue()

    @contextlib.asynccontextmanager
    async def receiving(self, receiver: Receiver) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(Ingress("tracker", self.settings, self.client, self.pool, receiver).run())
        try:
            yield task
        finally:
            await stop_task(task)

    async def send(self, *sequences: int, spool: str = SPOOL, agent: str = AGENT, **headers: str) -> None:
        js = self.client.jetstream(timeout=60)
        for sequence in sequences:
            all_headers = {
                HEADER_AGENT: agent,
                HEADER_SPOOL: spool,
                HEADER_SEQUENCE: str(sequence),
                HEADER_KIND: "test",
                **headers,
            }
            await js.publish(subjects.ingress("tracker", agent), b"%d" % sequence, headers=all_headers)

    async def told_of(self, sequence: int) -> Committed:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                committed = await self.told.get()
                if committed.sequence >= sequence:
                    return committed

    async def committed(self, *sequences: int) -> Committed:
        """Sends reports as an agent does: again, whenever it is asked to, until it is told that the last one is committed. What
        the bus still hands to a receiver that was killed comes later than what follows it, which looks like a gap."""
        await self.send(*sequences)
        async with asyncio.timeout(SECONDS_MAX):
            while (told := await self.told.get()).sequence < sequences[-1]:
                if told.resend:
                    await self.send(*sequences)
            return told

    async def told_to_resend(self) -> Committed:
        async with asyncio.timeout(SECONDS_MAX):
            while not (committed := await self.told.get()).resend:
                pass
            return committed

    async def position(self, body: bytes = SPOOL.encode(), agent: str = AGENT) -> Committed:
        reply = await self.client.request(subjects.position("tracker", agent), body, timeout=30)
        return Committed.from_json(reply.data)

    async def parked(self) -> list[Any]:
        return await self.pool.fetch("SELECT * FROM parked ORDER BY number")


@contextlib.asynccontextmanager
async def receiving_end(nats_url: str, database_url: str) -> AsyncIterator[Setup]:
    """Of the lane `tracker`; what agent AGENT is told stands in `told`."""
    settings = Settings(nats_url=nats_url)
    client = await bus_module.connect(settings, "test")
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=3)
    setup = Setup(settings, client, pool)

    async def hear(message: Any) -> None:
        setup.told.put_nowait(Committed.from_json(message.data))

    await bus_module.ensure_streams(client.jetstream(), settings)
    await client.subscribe(subjects.committed("tracker", AGENT), cb=hear)
    yield setup
    await bus_module.close(client)
    await pool.close()


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]
