"""Comparison of costs. Pure."""

from __future__ import annotations

COST_TOLERANCE = 1e-9
"""Part of the limit by which a sum of costs may be above it, because sums of prices are not exact."""


def within(cost: float, limit: float | None) -> bool:
    """True if the cost is not above the limit. None: no limit."""
    return limit is None or cost <= limit * (1 + COST_TOLERANCE)
