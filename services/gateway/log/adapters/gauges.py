"""Gauges of items that wait for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.sampling import Sample

_PARKED = "SELECT consumer, count(*) AS items FROM parked GROUP BY consumer"


async def parked_of(pool: asyncpg.Pool[Any]) -> Sequence[Sample]:
    return [Sample(catalogue.PARKED, row["items"], (row["consumer"],)) for row in await pool.fetch(_PARKED)]
