"""What could not be handled is parked with its reason, visible, and nothing behind it waits.

When the cause is mended, somebody asks for another try. Whoever parked it handles it again: it is removed, or stays with its new
reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from tenuto.kernel.database_away import DATABASE_AWAY
from tenuto.kernel.eventlog import Fenced, LogUnavailable

logger = logging.getLogger(__name__)

_PARK = """
INSERT INTO parked (consumer, item_id, kind, body, reason, token_digest) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (consumer, item_id) DO NOTHING"""
_ASKED_FOR = """
SELECT number, item_id, kind, body, token_digest FROM parked
WHERE consumer = $1 AND retry_asked_at IS NOT NULL ORDER BY number LIMIT $2"""
_HANDLED = "DELETE FROM parked WHERE number = $1"
_FAILED = "UPDATE parked SET retry_asked_at = NULL, retries = retries + 1, reason = $2 WHERE number = $1"

REASON_CHARACTERS_MAX = 4_000
"""A reason is for people; a traceback of a deep recursion is not."""
RETRY_POLL_SECONDS = 2.0
"""Between looks for what was asked for: people wait for it, and a look is one read of an index that is nearly always empty."""
RETRIES_AT_ONCE = 20
"""Bounds memory: a report may have some megabytes."""


@dataclass(frozen=True)
class Parked:
    number: int
    item_id: str
    kind: str
    body: bytes
    token_digest: bytes | None


class StaysParked(Exception):
    """From a handler: it can still not be handled. The text is the reason."""


Handle = Callable[[Parked], Awaitable[None]]
"""Handles it; idempotent by `item_id`. Whatever it raises is the reason for which it stays parked."""


async def park(
    database: Any, consumer: str, item_id: str, kind: str, body: bytes, reason: str, token_digest: bytes | None = None
) -> None:
    """`database` is an asyncpg pool or connection. Parked once, however often it comes."""
    await database.execute(_PARK, consumer, item_id, kind, body, _shown(reason), token_digest)


async def retry_parked(consumer: str, pool: asyncpg.Pool[Any], handle: Handle) -> None:
    """Handles again what people ask for, until cancelled; through any loss of the database. Raises Fenced where `handle` does."""
    while True:
        await asyncio.sleep(RETRY_POLL_SECONDS)
        try:
            await retry_once(consumer, pool, handle)
        except (LogUnavailable, *DATABASE_AWAY) as error:
            logger.warning("%s leaves what is to be tried again for later: %s", consumer, str(error) or type(error).__name__)


async def retry_once(consumer: str, pool: asyncpg.Pool[Any], handle: Handle) -> None:
    """One look. Raises Fenced, and what means that the database is away: then what was asked for stays asked for."""
    for row in await pool.fetch(_ASKED_FOR, consumer, RETRIES_AT_ONCE):
        try:
            await handle(Parked(**row))
        except (Fenced, LogUnavailable):
            raise
        except Exception as error:
            logger.warning("%s parked %s again", consumer, row["item_id"], exc_info=error)
            reason = str(error) if isinstance(error, StaysParked) else f"{type(error).__name__}: {error}"
            await pool.execute(_FAILED, row["number"], _shown(reason))
        else:
            await pool.execute(_HANDLED, row["number"])


def _shown(reason: str) -> str:
    return reason[:REASON_CHARACTERS_MAX].replace("\0", "\ufffd")
