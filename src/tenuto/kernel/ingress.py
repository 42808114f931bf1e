"""Receives one lane of reports: in order per agent, each committed before it is acknowledged.

Reports of a lane are numbered. A report that was committed before is acknowledged and dropped. A gap means that reports were lost
on the way, so those behind it are dropped, too, and the agent, whose spool still has them, is asked to send again. So the stream
may lose, repeat or reorder messages. `reception.py` decides which reports are taken, dropped and committed next.

Reports are committed in batches, in which the agents take turns, and each agent is told once per batch. So a thousand repetitions
cost no commit and few messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any, get_args

import asyncpg
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tenuto.kernel.bus import ensure_streams
from tenuto.kernel.commit_sizes import CommitSizes
from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.eventlog import Fenced, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.kernel.monitoring.instruments import INGRESS_SECONDS, REPORTS, REPORTS_PARKED
from tenuto.kernel.parked import Parked, StaysParked, park, retry_parked
from tenuto.kernel.positions import Positions
from tenuto.kernel.pull_consumer import PulledConsumer
from tenuto.kernel.received_reports import Poison, Receive, Report
from tenuto.kernel.reception import HeldReport, Reception, Spool
from tenuto.kernel.report_tokens import digest_of
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_FOLLOWED,
    HEADER_KIND,
    HEADER_ROUND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    HEADER_TRACE,
    Committed,
)
from tenuto.schemas.subjects import Lane
from tenuto.schemas.text import unstorable

logger = logging.getLogger(__name__)

HELD_MAX = 5_000
"""Most reports delivered and not yet acknowledged: bounds memory. Among these the agents take turns."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of these reports: bounds memory if reports are large."""
UNACKNOWLEDGED_MAX = 4 * HELD_MAX
"""Limit on the bus: a receiver that was killed leaves its reports unacknowledged for ACK_SECONDS, and the next receiver must
be able to go on meanwhile."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
SORT_MESSAGES_MAX = 500
"""Most messages sorted before other tasks get the processor."""
SPOOLS_KNOWN_MAX = 10_000
"""Most positions kept in memory; others are read again when needed."""
FOLLOWER_SECONDS_MAX = 0.01
"""Time that a report waits for one published together with it: usually that is there within one millisecond."""
SEQUENCE_MAX = 2**63
"""Largest sequence number that the table can hold."""
ACK_SECONDS = 30.0
"""Time after which an unacknowledged report is delivered again. While it is being handled, the server is told so."""
UNREADABLE = "unreadable"
"""Kind of a parked message whose headers cannot be read."""
DEFECT_ATTEMPTS_MAX = 3
"""Most attempts on a report, alone, if the receiver fails for a reason of its own; then the report is parked."""


_Arrived = HeldReport["Report", Msg]


class Ingress:
    def __init__(
        self, lane: Lane, settings: Settings, bus: Client, pool: asyncpg.Pool, receive: Receive,
        sizes: CommitSizes | None = None,
    ) -> None:  # fmt: skip
        assert lane in get_args(Lane)
        self._lane, self._settings, self._pool, self._receive = lane, settings, pool, receive
        self._sizes = sizes or CommitSizes()
        self._name = f"ingress-{lane}"
        self._positions = Positions(lane, self._name, bus, pool)
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._reception: Reception[Report, Msg] = Reception(SPOOLS_KNOWN_MAX)
        self._holding: dict[int, Msg] = {}
        """Messages being handled, so that the server can be told about them."""
        self._consumer = PulledConsumer(
            settings, subjects.INGRESS_STREAM, self._name, self._establish, self._take, HELD_MAX, HELD_BYTES_MAX
        )

    async def run(self) -> None:
        """Runs until cancelled. Raises Fenced if the receiver does."""
        await self._positions.open()
        tasks = [
            asyncio.create_task(self._consumer.run(), name=self._name),
            asyncio.create_task(self._work(), name=f"{self._name}-work"),
            asyncio.create_task(self._keep(), name=f"{self._name}-keep"),
            asyncio.create_task(retry_parked(self._name, self._pool, self._receive_again), name=f"{self._name}-retries"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in reversed(tasks):
                await stop_task(task)
            await self._positions.close()

    async def _establish(self, js: Any) -> ConsumerConfig:
        await ensure_streams(js, self._settings)
        return ConsumerConfig(
            name=self._name,
            durable_name=self._name,
            filter_subject=subjects.ingress_lane(self._lane),
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=UNACKNOWLEDGED_MAX,
        )

    def _take(self, message: Msg) -> None:
        self._arrived.append(message)
        if HEADER_FOLLOWED in (message.headers or {}) and len(self._arrived) < self._sizes.most(monotonic()):
            asyncio.get_running_loop().call_later(FOLLOWER_SECONDS_MAX, self._wake.set)  # one commit for both reports
        else:
            self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            words: dict[Spool, Committed] = {}
            # Only messages that are here now: those that arrive during the sorting wait for the next round, so a flood cannot put
            # off the commit.
            unsorted = len(self._arrived)
            while unsorted > 0:
                messages = [self._arrived.popleft() for _ in range(min(unsorted, SORT_MESSAGES_MAX))]
                unsorted -= len(messages)
                words |= await self._sort(messages)
                await asyncio.sleep(0)
            chosen = self._reception.choose(self._sizes.most(monotonic()), BATCH_BYTES_MAX)
            if chosen:
                words |= await self._commit(chosen, words)
            for spool, word in words.items():
                await self._positions.tell(spool, word)
            if not self._arrived and not len(self._reception):
                self._wake.clear()

    async def _keep(self) -> None:
        """Tells the server which messages are being handled. Nearly all are finished before that is due."""
        while True:
            # Messages that arrive during the pause have the whole of ACK_SECONDS left, so only older ones are extended.
            old = list(self._holding)
            await asyncio.sleep(ACK_SECONDS / 3)
            for key in old:
                if (message := self._holding.get(key)) is not None:
                    with contextlib.suppress(nats.errors.Error):
                        await message.in_progress()

    async def _sort(self, messages: Sequence[Msg]) -> dict[Spool, Committed]:
        """Holds new reports and acknowledges the others. Returns what to tell the agents about the others."""
        words: dict[Spool, Committed] = {}
        for message in messages:
            report = await self._read(message)
            if report is None:
                await self._acknowledge(message)
                continue
            spool = report.agent_id, report.spool_id
            if not self._reception.known(spool):
                self._reception.learn(spool, await self._positions.load(spool))
            verdict = self._reception.take(report, message)
            if verdict == "gap" and spool not in words:  # perhaps another instance has received the reports in between
                self._reception.learn(spool, await self._positions.load(spool))
                verdict = self._reception.take(report, message)
            if verdict == "held":
                self._holding[id(message)] = message
                continue
            gap = verdict == "gap"
            words[spool] = Committed(
                spool_id=report.spool_id, sequence=self._reception.committed(spool), resend=gap, round=report.round if gap else 0
            )
            await self._acknowledge(message)
        return words

    async def _commit(self, chosen: list[_Arrived], words: dict[Spool, Committed]) -> dict[Spool, Committed]:
        """Commits the chosen reports. Returns what to tell the agents; a gap that they were about to be told of stays one."""
        begun = perf_counter()
        await self._receive_patiently([item.report for item in chosen])
        seconds = perf_counter() - begun
        self._sizes.committed(seconds, monotonic())
        INGRESS_SECONDS.labels(self._lane).observe(seconds)
        REPORTS.labels(self._lane).inc(len(chosen))
        # Positions are stored after the commit and before the acknowledgement: a crash in between repeats reports, and loses
        # none.
        moved = self._reception.commit(chosen)
        await self._positions.store(moved)
        for item in chosen:
            for message in item.messages:
                self._holding.pop(id(message), None)
                await self._acknowledge(message)
        told: dict[Spool, Committed] = {}
        for spool, sequence in moved.items():
            before = words.get(spool) or Committed(spool_id=spool[1], sequence=0)
            told[spool] = before.model_copy(update={"sequence": sequence})
        return told

    async def _acknowledge(self, message: Msg) -> None:
        with contextlib.suppress(nats.errors.Error):
            await message.ack()
        self._consumer.release(message)

    async def _read(self, message: Msg) -> Report | None:
        headers = message.headers or {}
        try:
            sequence, round = int(headers.get(HEADER_SEQUENCE, "")), int(headers.get(HEADER_ROUND, "0"))
            if not 0 < sequence < SEQUENCE_MAX or any(map(unstorable, headers.values())):
                raise ValueError("a sequence out of range, or a character that no database stores")
            agent_id = subjects.agent_of(message.subject)  # enforced by the bus; the header is only the sender's claim
            if headers.get(HEADER_AGENT, agent_id) != agent_id:
                raise ValueError(f"agent {agent_id} reports in the name of {headers[HEADER_AGENT]!r}")
            report = Report(
                self._lane,
                agent_id,
                headers[HEADER_SPOOL],
                sequence,
                headers.get(HEADER_KIND, ""),
                message.data,
                headers.get(HEADER_TRACE, ""),
                round,
                headers.get(HEADER_TOKEN, ""),
            )
        except (ValueError, KeyError) as error:
            reason = f"its headers cannot be read: {error}"
            await self._positions.patiently(lambda: self._park_unreadable(message, reason))
            return None
        return report

    async def _receive_patiently(self, reports: list[Report]) -> None:
        """Returns when all reports are committed or parked, in order."""
        left, defects, wait_seconds = list(reports), 0, RETRY_SECONDS
        alone = 0
        while left:
            batch = left[:1] if alone else left
            # After a defect, reports are received one by one up to where the failed batch ended, so only the report that causes
            # it is parked.
            try:
                await self._receive(batch)
            except Poison as first:
                for poison in (first, *first.others):
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
        REPORTS_PARKED.labels(self._lane).inc()
        logger.error("%s parked report %s (%s): %s", self._name, item, report.kind, reason)
        digest = digest_of(report.token)
        await self._positions.patiently(lambda: park(self._pool, self._name, item, report.kind, report.body, reason, digest))

    async def _receive_again(self, parked: Parked) -> None:
        """Receives a parked report alone. Its position was passed when it was parked, so reports after it do not matter."""
        if parked.kind == UNREADABLE:
            raise StaysParked("its headers cannot be read, so nobody knows whose report it is")
        _, rest = parked.item_id.split("/", 1)
        agent_id, spool_id, sequence = rest.rsplit("/", 2)
        digest = parked.token_digest or digest_of("")
        report = Report(self._lane, agent_id, spool_id, int(sequence), parked.kind, parked.body, token_digest=digest)
        try:
            await self._receive([report])
        except Poison as poison:
            raise StaysParked(poison.reason) from poison

    async def _park_unreadable(self, message: Msg, reason: str) -> None:
        REPORTS_PARKED.labels(self._lane).inc()
        item = f"{message.subject}@{message.metadata.sequence.stream}@{message.metadata.timestamp.isoformat()}"
        logger.error("%s parked message %s: %s", self._name, item, reason)
        await park(self._pool, self._name, item, UNREADABLE, message.data, reason)
