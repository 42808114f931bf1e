"""Reads rows that name a decision in the log, with its sentence."""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any

from tenuto.services.gateway.read_models.explain import DECISIONS, positions_of, told
from tenuto.services.gateway.read_models.rows import Fetching

PAGE_MAX = 1_000
"""Most rows of one page of experiments, trials, checkpoints or allocations."""
POINTS_MAX = 50_000
"""Most metric points or log lines of one answer: usually some megabytes."""
SEEN = "(${0}::text[] = '{{}}' OR experiment_id NOT IN (SELECT experiment_id FROM experiments WHERE workspace = ANY(${0})))"
Hidden = Set[str]
"""Workspaces that are hidden from the user."""


class Telling(Fetching):
    async def _told(self, query: str, *values: Any, columns: tuple[str, ...] = ("reason",)) -> list[dict[str, Any]]:
        """Rows that name a decision in each of these columns, with its sentence."""
        rows = await self._rows(query, *values)
        positions = sorted({position for column in columns for position in positions_of(rows, column)})
        decisions = await self._rows(DECISIONS, positions) if positions else []
        for column in columns:
            rows = told(rows, column, decisions)
        return rows


def parsed(row: dict[str, Any], column: str) -> dict[str, Any]:
    """The row with the JSON of one column read."""
    row[column] = json.loads(row[column])
    return row
