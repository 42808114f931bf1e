"""Connections to a service's own tables, beside those of the log."""

from __future__ import annotations

from typing import Any

import asyncpg

from tenuto.kernel.eventlog_postgres import CONNECT_SECONDS_MAX


async def open_pool(url: str, connections_max: int, query_seconds_max: float) -> asyncpg.Pool[Any]:
    """Connects when somebody asks first, so a server that is away is a matter of who asks."""
    return await asyncpg.create_pool(
        url,
        min_size=0,  # a floor is restored in the background, with a traceback for each try while the server is away
        max_size=connections_max,
        command_timeout=query_seconds_max,
        timeout=CONNECT_SECONDS_MAX,
    )
