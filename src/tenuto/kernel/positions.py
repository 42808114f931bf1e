"""Committed positions of each agent's reports in a lane: stored in a table, sent after each commit, and answered on request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import asyncpg
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.kernel.reception import Spool
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.reports import HEADER_CLEAR, HEADER_SPOOL, Committed
from tenuto.schemas.subjects import Lane

logger = logging.getLogger(__name__)

COUNT_SECONDS_MAX, CLEAR_SECONDS_MAX = 1.0, 8.0
"""Time for the bus to count, and to remove, an agent's messages: less than the agent waits for the answer, which is useful
even without the count."""
PATIENCE_SECONDS = 2.0
"""Age at which a question is dropped: its agent has given up, and asks again."""
ANSWERS_MAX = 8
"""Most questions answered at the same time: bounds the load on the bus and the database."""

_LOAD = "SELECT sequence FROM ingress_positions WHERE lane = $1 AND agent_id = $2 AND spool_id = $3"
_LOAD_NEWEST = """
SELECT spool_id, sequence FROM ingress_positions WHERE lane = $1 AND agent_id = $2 ORDER BY updated_at DESC LIMIT 1"""
_STORE = """
INSERT INTO ingress_positions (lane, agent_id, spool_id, sequence)
SELECT $1, u.agent_id, u.spool_id, u.sequence
FROM unnest($2::text[], $3::text[], $4::bigint[]) AS u (agent_id, spool_id, sequence)
ON CONFLICT (lane, agent_id, spool_id) DO UPDATE SET sequence = excluded.sequence, updated_at = now()
WHERE ingress_positions.sequence < excluded.sequence"""


class Positions:
    def __init__(self, lane: Lane, name: str, bus: Client, pool: asyncpg.Pool) -> None:
        self._lane, self._name, self._bus, self._pool = lane, name, bus, pool
        self._listening: Any = None
        self._asked: dict[str, tuple[Msg, float]] = {}
        """Newest unanswered question of each agent, and its time of arrival."""
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(ANSWERS_MAX)

    async def open(self) -> None:
        """Starts to answer questions."""
        self._listening = await self._bus.subscribe(subjects.positions(self._lane), cb=self._on_question)

    async def close(self) -> None:
        with contextlib.suppress(nats.errors.Error):
            await self._listening.unsubscribe()
        await asyncio.gather(*map(stop_task, self._answering.values()))

    async def load(self, spool: Spool) -> int:
        """Committed position of a spool. Waits for the database as long as it takes, as `store` does."""

        async def load() -> int:
            return await self._pool.fetchval(_LOAD, self._lane, *spool) or 0

        found: int = await self.patiently(load)
        return found

    async def store(self, positions: dict[Spool, int]) -> None:
        agents, spools = [spool[0] for spool in positions], [spool[1] for spool in positions]

        async def store() -> None:
            await self._pool.execute(_STORE, self._lane, agents, spools, list(positions.values()))

        await self.patiently(store)

    async def patiently(self, work: Callable[[], Awaitable[Any]]) -> Any:
        wait_seconds = RETRY_SECONDS
        while True:
            try:
                return await work()
            except DATABASE_FAILED as error:
                logger.warning("%s waits for PostgreSQL: %s", self._name, str(error) or type(error).__name__)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)

    async def tell(self, spool: Spool, committed: Committed) -> None:
        # Lost if the bus cannot be reached; then the agent asks.
        with contextlib.suppress(nats.errors.Error):
            await self._bus.publish(subjects.committed(self._lane, spool[0]), committed.to_json())

    async def _on_question(self, message: Msg) -> None:
        """Answers each agent in a task of its own, so that one agent's slow answer does not delay another's."""
        agent_id = subjects.agent_of(message.subject)
        self._asked[agent_id] = message, monotonic()
        # A task that waits for its turn takes the newest question of its agent, so older ones cost nothing.
        if agent_id not in self._answering:
            self._answering[agent_id] = asyncio.create_task(self._answer_agent(agent_id), name=f"{self._name}-position")

    async def _answer_agent(self, agent_id: str) -> None:
        try:
            while agent_id in self._asked:
                async with self._turns:
                    message, asked_at = self._asked.pop(agent_id)
                    if monotonic() - asked_at <= PATIENCE_SECONDS:
                        await self._answer(message)
        finally:
            del self._answering[agent_id]

    async def _answer(self, message: Msg) -> None:
        """Answers a request on `tenuto.position.<lane>.<agent>`. The spool's id is the header HEADER_SPOOL or the body;
        without one, the agent's newest spool is meant. While the database cannot be reached there is no answer: the agent asks
        again."""
        agent_id = subjects.agent_of(message.subject)
        headers = message.headers or {}
        spool_id = headers.get(HEADER_SPOOL, "") or message.data.decode("utf-8", "replace").strip()
        try:
            # Counted before the position is read: a report that has left the stream by then is within that position, or lost.
            stored = await self._stored(agent_id, clear=HEADER_CLEAR in headers)
            if spool_id:
                sequence = await self._pool.fetchval(_LOAD, self._lane, agent_id, spool_id) or 0
            else:
                row = await self._pool.fetchrow(_LOAD_NEWEST, self._lane, agent_id)
                spool_id, sequence = ("", 0) if row is None else (row["spool_id"], row["sequence"])
            await message.respond(Committed(spool_id=spool_id, sequence=sequence, stored=stored).to_json())
        except (*DATABASE_FAILED, nats.errors.Error) as error:
            logger.warning("%s could not answer %s: %s", self._name, agent_id, str(error) or type(error).__name__)

    async def _stored(self, agent_id: str, *, clear: bool) -> int | None:
        """Number of the agent's messages in the lane. `clear`: remove them first; the agent has every uncommitted report."""
        subject = subjects.ingress(self._lane, agent_id)
        js = self._bus.jetstream(timeout=CLEAR_SECONDS_MAX if clear else COUNT_SECONDS_MAX)
        try:
            if clear:
                logger.warning("%s clears the messages of agent %s, which sends again what is needed", self._name, agent_id)
                await js.purge_stream(subjects.INGRESS_STREAM, subject=subject)
            info = await js.stream_info(subjects.INGRESS_STREAM, subjects_filter=subject)
        except NotFoundError:
            return 0
        # None is not 0: the agent concludes from 0 that reports were lost, and from None nothing.
        except (nats.errors.Error, JetStreamError, OSError) as error:
            logger.debug("%s could not count messages: %s", self._name, str(error) or type(error).__name__)
            return None
        return (info.state.subjects or {}).get(subject, 0)
