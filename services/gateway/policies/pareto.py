"""Pareto front of a search with several metrics: the trials that no other trial beats in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class Goal:
    metric: str
    smaller_is_better: bool


@dataclass(frozen=True)
class Measured:
    """A trial's last validation that has all goals."""

    number: int
    length: int
    values: tuple[float, ...]
    """By goal, as they were reported."""


def measured(goals: Sequence[Goal], validations: Sequence[tuple[int, int, dict[str, Any]]]) -> list[Measured]:
    """From (trial number, length, metrics) in the order of trials and, in each, of time. Left out are trials with a goal that is
    missing, NaN or infinite: they are worst in it, and so are never shown as good."""
    found: dict[int, Measured] = {}
    for number, length, metrics in validations:
        values = [metrics.get(goal.metric) for goal in goals]
        numbers = tuple(float(value) for value in values if isinstance(value, (int, float)) and isfinite(value))
        if len(numbers) == len(goals):
            found[number] = Measured(number, length, numbers)
    return list(found.values())


def front(goals: Sequence[Goal], trials: Sequence[Measured]) -> list[Measured]:
    """The Pareto front: who is dominated by nobody (Deb et al., IEEE TEC 6(2), 2002, section III-A: as good in all goals, better
    in one). The best in the first goal come first. O(n log n + n * size of the front)."""

    def scores(one: Measured) -> tuple[float, ...]:
        return tuple(value if goal.smaller_is_better else -value for goal, value in zip(goals, one.values, strict=True))

    kept: list[tuple[tuple[float, ...], Measured]] = []
    # In this order nobody is dominated by one who comes later.
    for key, one in sorted(((scores(one), one) for one in trials), key=lambda item: (item[0], item[1].number)):
        if not any(other != key and all(a <= b for a, b in zip(other, key, strict=True)) for other, _ in kept):
            kept.append((key, one))
    return [one for _, one in kept]
