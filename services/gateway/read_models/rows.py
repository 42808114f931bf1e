"""Fetches rows within limits of number and bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import asyncpg

from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.schemas.base import Model

ROWS_BYTES_MAX = 32 << 20
"""Most bytes of the rows of one answer as text: it ends there, and says so. A point may have thousands of metrics."""
PIECE_ROWS = 1_000
"""Rows fetched at once: a hundred megabytes of the longest rows, and few enough round trips for POINTS_MAX."""

M = TypeVar("M", bound=Model)
T = TypeVar("T")


class Rows(Generic[M]):
    """Rows of a table, each made a model only on use: 50,000 at once would block the event loop for seconds."""

    def __init__(
        self, rows: list[dict[str, Any]], make: Callable[[dict[str, Any]], M], more: bool = False, last: int | None = None
    ) -> None:
        """Rows of an answer. `more`: True: it was full, by number or by bytes. `last`: the last row looked at, where the next
        page begins."""
        self._rows, self._make, self.more, self.last = rows, make, more, last

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[M]:
        return (self._make(dict(row)) for row in self._rows)

    @property
    def end(self) -> dict[str, Any] | None:
        """The last row as it was read."""
        return self._rows[-1] if self._rows else None

    def encoded(self, first: int, count: int) -> bytes:
        """Some of them as elements of a JSON array."""
        return b",".join(self._make(dict(row)).to_json() for row in self._rows[first : first + count])


class Fetching:
    """A reader of the views by a pool of connections."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        rows = await self._again(lambda: self._pool.fetch(query, *values))
        return [dict(row) for row in rows]

    async def _searched(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a search, planned for these values: they are rare or common, and the plan that the server takes for all values
        from the sixth time on may be twenty times as slow."""

        async def fetch() -> list[asyncpg.Record]:
            async with self._pool.acquire() as connection, connection.transaction(readonly=True):
                await connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
                return list(await connection.fetch(query, *values))

        return [dict(row) for row in await self._again(fetch)]

    async def _many(self, limit: int, query: str, *values: Any) -> tuple[list[dict[str, Any]], bool]:
        """Rows, at most `limit` (the query has the same limit) and ROWS_BYTES_MAX; and True if there may be more."""
        if limit <= PIECE_ROWS:
            rows = await self._rows(query, *values)
            return rows, len(rows) == limit
        rows = await self._again(lambda: self._in_pieces(query, *values))
        return rows, len(rows) == limit or _bytes_of(rows) >= ROWS_BYTES_MAX

    async def _in_pieces(self, query: str, *values: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async with self._pool.acquire() as connection, connection.transaction(readonly=True):
            cursor = await connection.cursor(query, *values)
            bytes_read = 0
            while bytes_read < ROWS_BYTES_MAX:
                piece = [dict(row) for row in await cursor.fetch(PIECE_ROWS)]
                for row in piece:
                    rows.append(row)
                    bytes_read += _bytes_of([row])
                    if bytes_read >= ROWS_BYTES_MAX:
                        break
                if len(piece) < PIECE_ROWS:
                    break
        return rows

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except TimeoutError:
            raise
        except DATABASE_AWAY:
            # A connection that died while it was idle, or that the server is just ending, fails at its next use. None of
            # its age is used again; a new one may well work.
            await self._pool.expire_connections()
            return await work()


def _bytes_of(rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(len(value) for row in rows for value in row.values() if isinstance(value, str))
