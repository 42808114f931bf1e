"""Repairs by an operator: parked items, and the views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from tenuto.kernel.projection import Projector
from tenuto.schemas.base import Model
from tenuto.services.gateway.read_models.common import PROJECTION

BODY_SHOWN_BYTES_MAX = 64 * 1024
"""Most bytes shown of a parked item: enough for a person, and for all but the largest reports."""
PARKED_PAGE_MAX = 1_000

_ITEM = """number, consumer, item_id, kind, reason, octet_length(body) AS size_bytes,
    (extract(epoch FROM parked_at) * 1e6)::bigint AS parked_us, retries, retry_asked_at IS NOT NULL AS retry_asked"""
_PAGE = f"SELECT {_ITEM} FROM parked WHERE number > $1 ORDER BY number LIMIT $2"
_ONE = f"SELECT {_ITEM}, substring(body FROM 1 FOR {BODY_SHOWN_BYTES_MAX}) AS body FROM parked WHERE number = $1"
_ASK = "UPDATE parked SET retry_asked_at = now() WHERE number = $1"


class ParkedView(Model):
    number: int
    consumer: str
    """Consumer that could not handle it: a view, a service's effects, or a receiver of reports."""
    item_id: str
    """Id of an event; lane/agent/spool/sequence of a report."""
    kind: str
    """Kind of the event or the report; `unreadable` if not even that is known."""
    reason: str
    size_bytes: int
    parked_us: int
    retries: int
    """Number of failed retries."""
    retry_asked: bool
    """True while a retry is requested."""

    @property
    def of_a_view(self) -> bool:
        """True if its consumer is a view: its place among later events is gone, so only a rebuild folds it in order."""
        return self.consumer == PROJECTION


class ParkedDetail(ParkedView):
    body: str
    """Body as text, the first 64 KiB; bytes that are no text are replaced."""


class Rebuilding(Model):
    events: int
    """Number of events in the log, all of which are folded again."""


class Upkeep:
    def __init__(self, pool: asyncpg.Pool[Any], projector: Projector, tables: Sequence[str]) -> None:
        """Upkeep by an operator. `tables`: those that a rebuild empties."""
        self._pool, self._projector, self._tables = pool, projector, tables

    @property
    def filling(self) -> tuple[int, int] | None:
        """Position of the views and the one that they have to reach, while they fill after a rebuild; None if they are whole."""
        return (self._projector.position, self._projector.filling_to) if self._projector.filling else None

    async def parked(self, after: int, limit: int) -> list[ParkedView]:
        return [ParkedView(**row) for row in await self._pool.fetch(_PAGE, after, limit)]

    async def parked_item(self, number: int) -> ParkedDetail | None:
        row = await self._pool.fetchrow(_ONE, number)
        return None if row is None else ParkedDetail(**{**row, "body": row["body"].decode(errors="replace")})

    async def ask_retry(self, number: int) -> None:
        """Requests a retry, which its consumer finds within seconds. Has no effect if the item is gone."""
        await self._pool.execute(_ASK, number)

    async def rebuild_views(self) -> None:
        """Empties the views; returns when they are empty. They fill while the log is folded again."""
        await self._projector.rebuild(self._tables)
