"""Every combination of points along each axis, each trained to the full length.

The n-th trial's point is computed from n alone (its digits in a mixed radix), so the grid is never held in memory. Axes are taken
in the order of their paths' names, the last one changing fastest, whatever the order in the configuration.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

from tenuto.schemas.config import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    GridSearcher,
    IntHyperparameter,
    LogHyperparameter,
)
from tenuto.schemas.config.searchers import TRIALS_MAX
from tenuto.services.searcher.methods.base import Rules
from tenuto.services.searcher.sampling import Leaf, fill, in_use, leaves, power, stepped, steps


def points(axis: Leaf) -> int:
    """How many grid points an axis has."""
    if isinstance(axis, ConstHyperparameter):
        return 1
    if isinstance(axis, CategoricalHyperparameter):
        return len(axis.vals)
    if axis.step is not None:
        return steps(axis) if axis.count is None else min(axis.count, steps(axis))
    if isinstance(axis, IntHyperparameter):
        whole = axis.maxval - axis.minval + 1
        return whole if axis.count is None else min(axis.count, whole)
    if axis.minval == axis.maxval:
        return 1
    return axis.count or 1


def point(axis: Leaf, index: int) -> Any:
    """The index-th point: evenly spaced from minval to maxval, both included; the middle where there is only one."""
    if isinstance(axis, ConstHyperparameter):
        return axis.val
    if isinstance(axis, CategoricalHyperparameter):
        return axis.vals[index]
    last = points(axis) - 1
    if isinstance(axis, IntHyperparameter):
        step = axis.step or 1
        width = (axis.maxval - axis.minval) // step
        return axis.minval + step * ((2 * index * width + last) // (2 * last) if last else width // 2)
    if axis.step is not None:
        width = steps(axis) - 1
        at = stepped(axis, (2 * index * width + last) // (2 * last) if last else width // 2)
    elif last == 0:
        at = axis.minval + (axis.maxval - axis.minval) / 2
    elif index == last:
        at = axis.maxval
    else:
        at = axis.minval + (axis.maxval - axis.minval) * index / last
    return power(axis.base, at) if isinstance(axis, LogHyperparameter) else at


class Grid(Rules[GridSearcher]):
    @cached_property
    def trials_max(self) -> int:  # type: ignore[override]
        return prod(points(axis) for _, axis in leaves(self.space))

    @property
    def replaces(self) -> bool:
        return False

    @property
    def problem(self) -> str | None:
        if self.settings.constraints or self.settings.starting_points:
            return "The grid searcher tries every point of the grid: leave out constraints and starting_points, or use random."
        if self.trials_max <= TRIALS_MAX:
            return None
        return (
            f"The grid has {self.trials_max:,} points, but an experiment may have at most {TRIALS_MAX:,} trials;"
            " lower `count` of some hyperparameters, or use the random or asha searcher."
        )

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        rest = trial_number - 1
        values = {}
        for path, axis in sorted(leaves(self.space), key=lambda leaf: leaf[0], reverse=True):
            rest, index = divmod(rest, points(axis))
            values[path] = point(axis, index)
        return fill(self.space, in_use(self.space, values))
