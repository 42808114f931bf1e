"""Keeps the views up to date: follows the log and folds each batch in one transaction with the cursor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from tenuto.kernel.feed import Feed
from tenuto.schemas.envelope import Event, encode_event

logger = logging.getLogger(__name__)

BATCH_EVENTS_MAX = 500
RETRY_SECONDS = 0.5
Apply = Callable[[asyncpg.Connection, Sequence[Event]], Awaitable[None]]


class Follower:
    def __init__(self, name: str, apply: Apply, pool: asyncpg.Pool, feed: Feed) -> None:
        self._name, self._apply, self._pool, self._feed = name, apply, pool, feed
        self.position = 0
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        row = await self._pool.fetchval("SELECT position FROM projection_cursors WHERE projection = $1", self._name)
        self.position = row or 0
        async for batch in self._feed.follow(self.position, BATCH_EVENTS_MAX):
            await self._fold_patiently(batch)
            async with self._moved:
                self.position = batch[-1].position
                self._moved.notify_all()

    async def wait_position(self, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.position >= position)

    async def _fold_patiently(self, batch: Sequence[Event]) -> None:
        while True:
            try:
                await self._fold(batch)
            except (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError) as error:
                logger.warning("views wait for the database: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _fold(self, batch: Sequence[Event]) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            try:
                async with connection.transaction():
                    await self._apply(connection, batch)
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, KeyError, TypeError):
                for event in batch:
                    await self._fold_or_park(connection, event)
            await connection.execute(
                """INSERT INTO projection_cursors (projection, position) VALUES ($1, $2)
                   ON CONFLICT (projection) DO UPDATE SET position = excluded.position""",
                self._name,
                batch[-1].position,
            )

    async def _fold_or_park(self, connection: asyncpg.Connection, event: Event) -> None:
        try:
            async with connection.transaction():
                await self._apply(connection, [event])
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, KeyError, TypeError) as error:
            logger.exception("views cannot fold event %s at %s", event.type, event.position)
            await connection.execute(
                """INSERT INTO parked (consumer, item_id, kind, body, reason) VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT DO NOTHING""",
                self._name,
                str(event.id),
                event.type,
                encode_event(event),
                f"{type(error).__name__}: {error}",
            )
