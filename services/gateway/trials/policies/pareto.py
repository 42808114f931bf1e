"""Pareto front of a search with several metrics: the trials that no other trial beats in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    metric: str
    smaller_is_better: bool


@dataclass(frozen=True)
class ParetoCandidate:
    """A trial's last validation that has all goals, each of them a finite number: a trial without one is never shown as good."""

    number: int
    length: int
    values: tuple[float, ...]
    """Values by goal, as they were reported."""


def front(goals: Sequence[Goal], trials: Sequence[ParetoCandidate]) -> list[ParetoCandidate]:
    """The Pareto front: trials that no other one dominates (Deb et al., IEEE TEC 6(2), 2002, section III-A: as good in all goals,
    better in one). The best in the first goal come first. O(n log n + n * size of the front)."""

    def scores(one: ParetoCandidate) -> tuple[float, ...]:
        return tuple(value if goal.smaller_is_better else -value for goal, value in zip(goals, one.values, strict=True))

    kept: list[tuple[tuple[float, ...], ParetoCandidate]] = []
    # In this order no trial is dominated by a later one.
    for key, one in sorted(((scores(one), one) for one in trials), key=lambda item: (item[0], item[1].number)):
        if not any(other != key and all(a <= b for a, b in zip(other, key, strict=True)) for other, _ in kept):
            kept.append((key, one))
    return [one for _, one in kept]
