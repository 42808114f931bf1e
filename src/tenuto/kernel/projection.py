"""Read models: tables folded from the log, with a cursor that moves in the same transaction. They can be dropped and rebuilt.

An event that cannot be folded is parked and the others go on: a view may miss something, but it never stands still.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import asyncpg

from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.kernel.parked import park
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event, encode_event

logger = logging.getLogger(__name__)

BATCH_EVENTS_MAX = 500
"""Most events in one transaction."""
CURSOR_EVENTS_MAX = 1_000
"""Most irrelevant events that a view skips before it stores its cursor: skipping takes no transaction, but a start reads them
again."""

Apply = Callable[[Any, Sequence[Event]], Awaitable[None]]
"""Folds events into tables, on the given connection, which has a transaction open. The same events always give the same rows."""

_LOAD = "SELECT position FROM projection_cursors WHERE projection = $1"
_BEGIN = "INSERT INTO projection_cursors (projection, position) VALUES ($1, 0) ON CONFLICT DO NOTHING"
_MOVE = "UPDATE projection_cursors SET position = $2 WHERE projection = $1 AND position = $3"
_BACK = "UPDATE projection_cursors SET position = 0 WHERE projection = $1"
_HEAD = "SELECT position FROM log_head"
_BUSY = (*DATABASE_AWAY, asyncpg.TransactionRollbackError, LogUnavailable)
"""Errors for which no event is to blame."""


class _Moved(Exception):
    """Another instance moved the cursor."""


class Projector:
    def __init__(
        self, name: str, apply: Apply, pool: asyncpg.Pool, feed: EventFeed, types: Collection[str] | None = None
    ) -> None:
        """`types`: types of the events that matter; None: all."""
        self._name, self._apply, self._pool, self._feed = name, apply, pool, feed
        self._types = None if types is None else frozenset(types)
        self.position = 0
        """Position up to which all events are folded (or parked)."""
        self.filling_to = 0
        """Position that the view has to reach before it holds all that it held before a rebuild, or that the log held at a start
        far behind it; 0 if neither happened."""
        self._cursor = 0
        self._moved = asyncio.Condition()
        self._emptied = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled, through any loss of the database."""
        while True:
            self._emptied.clear()  # before the cursor is read, so that a rebuild after this point starts another round
            self._cursor = await self._patiently(self._load)
            head = await self._patiently(self._head)
            if head - self._cursor > CURSOR_EVENTS_MAX:
                self.filling_to = head
            await self._advance(self._cursor)
            try:
                await self._follow()
            except _Moved:
                logger.warning("another instance folds %s as well; this one goes on from where that is", self._name)

    async def _follow(self) -> None:
        """Folds the feed; returns when the view was emptied and has to begin anew."""
        folding = asyncio.create_task(self._fold_all(), name=f"{self._name}-folding")
        emptied = asyncio.create_task(self._emptied.wait(), name=f"{self._name}-emptied")
        try:
            await asyncio.wait([folding, emptied], return_when=asyncio.FIRST_COMPLETED)
            if folding.done():
                folding.result()
        finally:
            await stop_task(folding)
            await stop_task(emptied)

    async def _fold_all(self) -> None:
        async for batch in self._feed.follow(self._cursor, BATCH_EVENTS_MAX):
            await self._take(batch)

    async def wait_position(self, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.position >= position)

    @property
    def filling(self) -> bool:
        """True while what is missing in the view may only not be folded yet."""
        return self.position < self.filling_to

    async def rebuild(self, tables: Sequence[str]) -> None:
        """Empties the tables and resets the cursor, in one transaction: the whole log is folded again, by this instance if it
        runs, and by others at their next fold. The view's parked events are removed, too."""
        names = ", ".join(f'"{table}"' for table in tables)
        async with self._pool.acquire() as connection, connection.transaction():
            # The cursor first, as in `_fold`: a fold under way is waited for, and the next one finds that the cursor has moved.
            await connection.execute(_BACK, self._name)
            await connection.execute(f"TRUNCATE {names}")
            await connection.execute("DELETE FROM parked WHERE consumer = $1", self._name)
        self.filling_to = await self._head()
        await self._advance(0)
        self._emptied.set()

    async def _load(self) -> int:
        await self._pool.execute(_BEGIN, self._name)
        return int(await self._pool.fetchval(_LOAD, self._name))

    async def _head(self) -> int:
        return int(await self._pool.fetchval(_HEAD))

    async def _take(self, batch: Sequence[Event]) -> None:
        last = batch[-1].position
        wanted = [event for event in batch if self._types is None or event.type in self._types]
        if wanted or last - self._cursor >= CURSOR_EVENTS_MAX:
            await self._patiently(lambda: self._fold(wanted, last))
            self._cursor = last
        await self._advance(last)

    async def _advance(self, position: int) -> None:
        async with self._moved:
            self.position = position
            self._moved.notify_all()

    async def _fold(self, events: Sequence[Event], last: int) -> None:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                # Before anything else: a second instance waits here for the row, and then sees that it is too late.
                if await connection.execute(_MOVE, self._name, last, self._cursor) != "UPDATE 1":
                    raise _Moved
                await self._apply_or_park(connection, events)
        except DATABASE_AWAY:
            # The commit may have succeeded although its answer was lost.
            if await self._patiently(self._load) == last:
                return
            raise

    async def _apply_or_park(self, connection: Any, events: Sequence[Event]) -> None:
        try:
            async with connection.transaction():
                await self._apply(connection, events)
            return
        except _BUSY:
            raise
        except Exception as error:
            if len(events) == 1:
                await self._park(connection, events[0], error)
                return
        for event in events:
            await self._apply_or_park(connection, [event])

    async def _park(self, connection: Any, event: Event, error: Exception) -> None:
        logger.error("%s parked %s at position %d", self._name, event.type, event.position, exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        await park(connection, self._name, str(event.id), event.type, encode_event(event), reason)

    async def _patiently(self, work: Callable[[], Awaitable[Any]]) -> Any:
        wait_seconds = RETRY_SECONDS
        while True:
            try:
                return await work()
            except _BUSY as error:
                logger.warning("%s waits for PostgreSQL: %s", self._name, str(error) or type(error).__name__)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)
