"""Connection pools for a service's own tables, beside those of the log."""

from __future__ import annotations

from typing import Any

import asyncpg

from tenuto.kernel.eventlog_postgres import CONNECT_SECONDS_MAX


async def open_pool(url: str, connections_max: int, query_seconds_max: float) -> asyncpg.Pool[Any]:
    """A pool that connects at the first query, so that an unreachable server is an error of that query and not of the start."""
    return await asyncpg.create_pool(
        url,
        min_size=0,  # asyncpg restores a minimum in the background, with a traceback for each try while the server is down
        max_size=connections_max,
        command_timeout=query_seconds_max,
        timeout=CONNECT_SECONDS_MAX,
    )
