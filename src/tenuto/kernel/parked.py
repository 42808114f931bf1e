"""Parked items: reports and events that could not be handled, with their reasons, visible to operators; nothing behind them
waits.

Once the cause is fixed, an operator asks for another attempt. The consumer that parked the item handles it again: it is removed,
or stays with its new reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from tenuto.kernel.database_errors import DATABASE_AWAY
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
"""Most characters of a reason. Reasons are for people; the traceback of a deep recursion is not."""
RETRY_POLL_SECONDS = 2.0
"""Pause between checks for requested retries: people wait for them, and a check is one read of an index that is nearly always
empty."""
RETRIES_AT_ONCE = 20
"""Most items retried at once: bounds memory, because a report may have some megabytes."""


@dataclass(frozen=True)
class Parked:
    number: int
    item_id: str
    kind: str
    body: bytes
    token_digest: bytes | None


class StaysParked(Exception):
    """Raised by a handler: the item still cannot be handled. The text is the reason."""


Handle = Callable[[Parked], Awaitable[None]]
"""Handler of a parked item; idempotent by `item_id`. Any error that it raises is the reason for which the item stays parked."""


async def park(
    database: Any, consumer: str, item_id: str, kind: str, body: bytes, reason: str, token_digest: bytes | None = None
) -> None:
    """Parks an item, once however often this is called. `database`: an asyncpg pool or connection."""
    await database.execute(_PARK, consumer, item_id, kind, body, _shown(reason), token_digest)


async def retry_parked(consumer: str, pool: asyncpg.Pool[Any], handle: Handle) -> None:
    """Handles items again when an operator asks for it, until cancelled; through any loss of the database. Raises Fenced if
    `handle` does."""
    while True:
        await asyncio.sleep(RETRY_POLL_SECONDS)
        try:
            await retry_once(consumer, pool, handle)
        except (LogUnavailable, *DATABASE_AWAY) as error:
            logger.warning("%s leaves what is to be tried again for later: %s", consumer, str(error) or type(error).__name__)


async def retry_once(consumer: str, pool: asyncpg.Pool[Any], handle: Handle) -> None:
    """Handles the items asked for at this moment. Raises Fenced, and errors of an unreachable database; requests then stay
    open."""
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
