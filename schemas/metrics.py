"""Usable values of metrics: numbers that can be compared. One rule for all who ask which value is the best.

A value that is not finite says that the training has failed, whatever its sign: an infinite loss would be the best where more is
better, and so would an infinite score of a model that divides by zero.
"""

from __future__ import annotations

from math import isfinite
from typing import TypeGuard


def usable(value: float | None) -> TypeGuard[float]:
    """True if the value can be compared with others: it is there, and finite."""
    return value is not None and isfinite(value)


def usable_in_sql(expression: str) -> str:
    """The same as a condition of PostgreSQL's, which sorts NaN above every number. `expression`: a double precision."""
    return f"coalesce({expression} NOT IN ('NaN', 'Infinity', '-Infinity'), false)"
