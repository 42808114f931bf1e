"""Connections to a service's own tables, beside those of the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg

from tenuto.kernel.database_away import DATABASE_AWAY
from tenuto.kernel.eventlog_postgres import CONNECT_SECONDS_MAX
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX

logger = logging.getLogger(__name__)


async def open_pool(url: str, connections_max: int, query_seconds_max: float) -> asyncpg.Pool[Any]:
    """Waits for a server that is away, as long as it takes. Raises what asyncpg raises where the server refuses us."""
    wait_seconds = RETRY_SECONDS
    while True:
        try:
            return await asyncpg.create_pool(
                url, min_size=1, max_size=connections_max, command_timeout=query_seconds_max, timeout=CONNECT_SECONDS_MAX
            )
        except DATABASE_AWAY as error:
            reason = str(error) or type(error).__name__
            logger.warning("PostgreSQL cannot be reached, trying again in %.1f s: %s", wait_seconds, reason)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)
