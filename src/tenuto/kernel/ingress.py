"""Receives one lane of reports: in order per agent, each committed before it is acknowledged.

A lane's reports are numbered. What was committed before is acknowledged and dropped; a gap means that reports were lost on the
way, so what stands behind it is dropped too and the agent, whose spool still has them, is asked to send again. So the stream
may lose, repeat or reorder messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import unquote
from uuid import UUID

import asyncpg
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tenuto.kernel.bus import ensure_streams
from tenuto.kernel.database_away import DATABASE_AWAY, DATABASE_FAILED
from tenuto.kernel.durable import DurableConsumer
from tenuto.kernel.eventlog import Fenced, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.kernel.parked import park
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.ids import name_id
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_FOLLOWED,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TRACE,
    Committed,
)
from tenuto.schemas.subjects import Lane

logger = logging.getLogger(__name__)

HELD_MAX = 1_000
"""Reports delivered and not yet acknowledged: bounds memory."""
BATCH_REPORTS_MAX = 500
"""Reports in one commit."""
FOLLOWER_SECONDS_MAX = 0.01
"""A report that was published together with the next one waits so long for it: usually it is there within one millisecond."""
SEQUENCE_MAX = 2**63
"""What the table can hold."""
ACK_SECONDS = 30.0
"""An unacknowledged report is delivered again after so long. While it is worked on the server is told so."""
DEFECT_ATTEMPTS_MAX = 3
"""A receiver that fails for a reason of its own gets a report so often, alone; then the report is parked."""

_LOAD = "SELECT sequence FROM ingress_positions WHERE lane = $1 AND agent_id = $2 AND spool_id = $3"
_LOAD_NEWEST = """
SELECT spool_id, sequence FROM ingress_positions WHERE lane = $1 AND agent_id = $2 ORDER BY updated_at DESC LIMIT 1"""
_STORE = """
INSERT INTO ingress_positions (lane, agent_id, spool_id, sequence)
SELECT $1, u.agent_id, u.spool_id, u.sequence
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS u (agent_id, spool_id, sequence)
ON CONFLICT (lane, agent_id, spool_id) DO UPDATE SET sequence = excluded.sequence, updated_at = now()
WHERE ingress_positions.sequence < excluded.sequence"""


@dataclass(frozen=True)
class Report:
    lane: Lane
    agent_id: str
    spool_id: str
    sequence: int
    kind: str
    body: bytes
    trace: str = ""

    @property
    def id(self) -> UUID:
        """Of the command made from it: the same report, however often it comes, is the same command."""
        return name_id(self.spool_id, self.lane, str(self.sequence))


class Poison(Exception):
    """This report can never be received. It is parked, and what is behind it goes on."""

    def __init__(self, report: Report, reason: str) -> None:
        super().__init__(reason)
        self.report, self.reason = report, reason


Receive = Callable[[Sequence[Report]], Awaitable[None]]
"""Returns when all the reports are committed. Raises Poison to park one of them: then it gets the others again. LogUnavailable
and other losses of the database are tried again; any other error counts as a defect, and the report that causes it is parked."""

_Spool = tuple[str, str]
"""Agent id and spool id."""


class Ingress:
    def __init__(self, lane: Lane, settings: Settings, bus: Client, pool: asyncpg.Pool, receive: Receive) -> None:
        assert lane in get_args(Lane)
        self._lane, self._settings, self._bus, self._pool, self._receive = lane, settings, bus, pool, receive
        self._name = f"ingress-{lane}"
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._positions: dict[_Spool, int] = {}
        self._consumer = DurableConsumer(
            settings,
            self._name,
            subjects.INGRESS_STREAM,
            f"tenuto.ingress.{lane}.*",
            self._establish,
            self._take,
            description=f"Reports of agents, lane {lane}: in order per agent, acknowledged when committed.",
        )

    async def run(self) -> None:
        """Until cancelled. Raises Fenced where the receiver does."""
        answering = await self._bus.subscribe(f"tenuto.position.{self._lane}.*", cb=self._answer)
        fetching = asyncio.create_task(self._consumer.run(), name=self._name)
        working = asyncio.create_task(self._work(), name=f"{self._name}-work")
        try:
            done, _ = await asyncio.wait({fetching, working}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await stop_task(working)
            await stop_task(fetching)
            with contextlib.suppress(nats.errors.Error):
                await answering.unsubscribe()

    async def _establish(self, js: Any) -> ConsumerConfig:
        await ensure_streams(js, self._settings)
        return ConsumerConfig(
            name=self._name,
            durable_name=self._name,
            filter_subject=f"tenuto.ingress.{self._lane}.*",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=HELD_MAX,
        )

    async def _take(self, message: Msg) -> None:
        self._arrived.append(message)
        if HEADER_FOLLOWED in (message.headers or {}) and len(self._arrived) < BATCH_REPORTS_MAX:
            asyncio.get_running_loop().call_later(FOLLOWER_SECONDS_MAX, self._wake.set)  # one commit for both
        else:
            self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            messages = [self._arrived.popleft() for _ in range(min(len(self._arrived), BATCH_REPORTS_MAX))]
            if not self._arrived:
                self._wake.clear()
            keeping = asyncio.create_task(self._keep(messages))
            try:
                await self._process(messages)
            finally:
                await stop_task(keeping)

    async def _keep(self, messages: Sequence[Msg]) -> None:
        """Tells the server that these are being worked on."""
        while True:
            await asyncio.sleep(ACK_SECONDS / 3)
            for message in messages:
                with contextlib.suppress(nats.errors.Error):
                    await message.in_progress()

    async def _process(self, messages: Sequence[Msg]) -> None:
        wanted: list[Report] = []
        next_positions: dict[_Spool, int] = {}
        highest: dict[_Spool, int] = {}
        for message in messages:
            report = await self._read(message)
            if report is None:
                continue
            spool = report.agent_id, report.spool_id
            position = next_positions.get(spool)
            if position is None:
                position = await self._position(spool, behind=report.sequence - 1)
            if report.sequence == position + 1:
                wanted.append(report)
                position += 1
            next_positions[spool] = position
            highest[spool] = max(highest.get(spool, 0), report.sequence)
        if wanted:
            await self._receive_patiently(wanted)
            await self._store(next_positions)
        for message in messages:
            with contextlib.suppress(nats.errors.Error):
                await message.ack()
        for spool, position in next_positions.items():
            await self._tell(spool, Committed(spool_id=spool[1], sequence=position, resend=highest[spool] > position))

    async def _read(self, message: Msg) -> Report | None:
        headers = message.headers or {}
        try:
            sequence = int(headers.get(HEADER_SEQUENCE, ""))
            if not 0 < sequence < SEQUENCE_MAX or any("\0" in value for value in headers.values()):
                raise ValueError("a sequence out of range, or a zero character")
            report = Report(
                self._lane,
                headers[HEADER_AGENT],
                headers[HEADER_SPOOL],
                sequence,
                headers.get(HEADER_KIND, ""),
                message.data,
                headers.get(HEADER_TRACE, ""),
            )
        except (ValueError, KeyError) as error:
            reason = f"its headers cannot be read: {error}"
            await self._patiently(lambda: self._park_unreadable(message, reason))
            return None
        return report

    async def _receive_patiently(self, reports: list[Report]) -> None:
        """Until all are committed or parked, in order."""
        left, defects, wait_seconds = list(reports), 0, RETRY_SECONDS
        alone = 0
        while left:
            batch = left[:1] if alone else left
            try:
                await self._receive(batch)
            except Poison as poison:
                await self._park(poison.report, poison.reason)
                left.remove(poison.report)
            except Fenced:
                raise
            except (LogUnavailable, *DATABASE_AWAY) as error:
                logger.warning("%s cannot commit, trying again in %.1f s: %s", self._name, wait_seconds, error)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)
            except Exception as error:
                # A defect: one report after the other shows which of them causes it.
                logger.exception("%s failed on %d report(s)", self._name, len(batch))
                if not alone:
                    alone = len(left)
                    continue
                defects += 1
                if defects >= DEFECT_ATTEMPTS_MAX:
                    await self._park(batch[0], f"the receiver failed: {type(error).__name__}: {error}")
                    left, alone, defects = left[1:], alone - 1, 0
                else:
                    await asyncio.sleep(wait_seconds)
            else:
                left = left[len(batch) :]
                alone, defects, wait_seconds = max(alone - 1, 0), 0, RETRY_SECONDS

    async def _park(self, report: Report, reason: str) -> None:
        item = f"{report.lane}/{report.agent_id}/{report.spool_id}/{report.sequence}"
        logger.error("%s parked report %s (%s): %s", self._name, item, report.kind, reason)
        await self._patiently(lambda: park(self._pool, self._name, item, report.kind, report.body, reason))

    async def _park_unreadable(self, message: Msg, reason: str) -> None:
        item = f"{message.subject}@{message.metadata.sequence.stream}@{message.metadata.timestamp.isoformat()}"
        logger.error("%s parked message %s: %s", self._name, item, reason)
        await park(self._pool, self._name, item, "unreadable", message.data, reason)

    async def _position(self, spool: _Spool, behind: int) -> int:
        """The last committed sequence. Asked of the database where the one we know would mean a gap: another instance may
        have received meanwhile."""
        known = self._positions.get(spool, -1)
        if known >= behind:
            return known

        async def load() -> int:
            return await self._pool.fetchval(_LOAD, self._lane, *spool) or 0

        self._positions[spool] = max(known, await self._patiently(load))
        return self._positions[spool]

    async def _store(self, positions: dict[_Spool, int]) -> None:
        agents, spools = [spool[0] for spool in positions], [spool[1] for spool in positions]

        async def store() -> None:
            await self._pool.execute(_STORE, self._lane, agents, spools, list(positions.values()))

        await self._patiently(store)
        self._positions.update(positions)

    async def _patiently(self, work: Callable[[], Awaitable[Any]]) -> Any:
        wait_seconds = RETRY_SECONDS
        while True:
            try:
                return await work()
            except DATABASE_FAILED as error:
                logger.warning("%s waits for PostgreSQL: %s", self._name, error or type(error).__name__)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)

    async def _tell(self, spool: _Spool, committed: Committed) -> None:
        # Lost where the bus is away; then the agent asks.
        with contextlib.suppress(nats.errors.Error):
            await self._bus.publish(subjects.committed(self._lane, spool[0]), committed.to_json())

    async def _answer(self, message: Msg) -> None:
        """A request on `tenuto.position.<lane>.<agent>`: the spool's id is the header HEADER_SPOOL or the body; without one, the
        agent's newest spool is meant. No answer while the database is away: the agent asks again."""
        agent_id = unquote(message.subject.rsplit(".", 1)[1])
        spool_id = (message.headers or {}).get(HEADER_SPOOL, "") or message.data.decode("utf-8", "replace").strip()
        try:
            if spool_id:
                sequence = await self._pool.fetchval(_LOAD, self._lane, agent_id, spool_id) or 0
            else:
                row = await self._pool.fetchrow(_LOAD_NEWEST, self._lane, agent_id)
                spool_id, sequence = ("", 0) if row is None else (row["spool_id"], row["sequence"])
            await message.respond(Committed(spool_id=spool_id, sequence=sequence).to_json())
        except (*DATABASE_FAILED, nats.errors.Error) as error:
            logger.warning("%s could not answer %s: %s", self._name, agent_id, error or type(error).__name__)
