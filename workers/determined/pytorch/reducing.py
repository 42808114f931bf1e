"""`pytorch.Reducer`: as in Determined each batch counts once, so a short last batch weighs as much as a full one."""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Reducer(enum.Enum):
    """Each is a function of all values, which is what Tenuto takes, too."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4

    def __call__(self, values: Sequence[float]) -> float:
        if self is Reducer.AVG:
            return sum(values) / len(values)
        if self is Reducer.SUM:
            return sum(values)
        return max(values) if self is Reducer.MAX else min(values)
