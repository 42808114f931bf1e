"""Every combination of points along each axis, each trained to the full length.

The n-th trial's point is computed from n alone (its digits in a mixed radix), so the grid is never held in memory. Axes are taken
in the order of their paths' names, the last one changing fastest, whatever the order in the configuration.

Conditions (`when`): each combination of the hyperparameters that they name has a grid of its own, of what is in use then, one
after the other. So every configuration comes once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from tenuto.schemas.config import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    GridSearcher,
    IntHyperparameter,
    LogHyperparameter,
)
from tenuto.schemas.config.ranges import power, stepped, steps
from tenuto.schemas.config.searcher_base import TRIALS_MAX
from tenuto.schemas.config.space import allowed, same
from tenuto.services.searcher.methods.base import Rules
from tenuto.services.searcher.methods.sampling import Leaf, Path, Plan, fill, leaves, plan_of


def points(axis: Leaf) -> int:
    """Number of grid points of an axis."""
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


COMBINATIONS_MAX = 100_000
"""Combinations of the hyperparameters that conditions name: each is held in memory."""


@dataclass(frozen=True)
class _Part:
    """The points of the grid that agree in the hyperparameters which conditions name."""

    first: int
    """Number of points before it."""
    values: Mapping[Path, Any]
    """Values of the hyperparameters that conditions name, as far as they are in use."""
    axes: tuple[tuple[Path, Leaf], ...]
    """Varying hyperparameters inside, the last one changing fastest."""
    count: int


@dataclass(frozen=True)
class _Parts:
    parts: tuple[_Part, ...]
    count: int
    """Points in all. Where there are too many combinations: more than there may be trials."""

    def at(self, index: int) -> dict[Path, Any]:
        part = self.parts[bisect_right(self.parts, index, key=lambda part: part.first) - 1]
        return dict(part.values) | _digits(part.axes, index - part.first)


@lru_cache(maxsize=64)
def _parts_of(plan: Plan) -> _Parts:
    """Each point once: a hyperparameter that is not in use has no points."""
    known = {".".join(path): (path, leaf) for path, leaf in plan.leaves}
    named = {name for _, leaf in plan.leaves for name in leaf.when or {}}
    # Who is named comes after those that it depends on itself.
    order: list[str] = []

    def place(name: str) -> None:
        for other in sorted(known[name][1].when or {}):
            place(other)
        if name in named and name not in order:
            order.append(name)

    for name in sorted(named):
        place(name)

    def uses(leaf: Leaf, values: Mapping[Path, Any]) -> bool:
        return all(
            known[name][0] in values and any(same(values[known[name][0]], value) for value in allowed(condition))
            for name, condition in (leaf.when or {}).items()
        )

    combinations: list[dict[Path, Any]] = [{}]
    for name in order:
        path, leaf = known[name]
        if len(combinations) * points(leaf) > COMBINATIONS_MAX:
            return _Parts((), TRIALS_MAX + 1)
        combinations = [
            values | {path: point(leaf, index)} if used else values
            for values in combinations
            for used in [uses(leaf, values)]
            for index in (range(points(leaf)) if used else (0,))
        ]
    rest = tuple(sorted(((path, leaf) for name, (path, leaf) in known.items() if name not in named), key=lambda axis: axis[0]))
    parts, first = [], 0
    for values in combinations:
        axes = tuple((path, leaf) for path, leaf in rest if uses(leaf, values))
        parts.append(_Part(first, values, axes, prod(points(leaf) for _, leaf in axes)))
        first += parts[-1].count
    return _Parts(tuple(parts), first)


def _digits(axes: tuple[tuple[Path, Leaf], ...], number: int) -> dict[Path, Any]:
    """The number-th combination of points, the last axis changing fastest."""
    values = {}
    for path, axis in reversed(axes):
        number, index = divmod(number, points(axis))
        values[path] = point(axis, index)
    return values


class Grid(Rules[GridSearcher]):
    @cached_property
    def trials_max(self) -> int:  # type: ignore[override]
        return _parts_of(plan_of(self.space)).count

    @property
    def replaces(self) -> bool:
        return False

    @property
    def problem(self) -> str | None:
        if self.settings.constraints or self.settings.starting_points:
            return "The grid searcher tries every point of the grid: leave out constraints and starting_points, or use random."
        if self.trials_max <= TRIALS_MAX:
            return None
        many = f"{prod(points(axis) for _, axis in leaves(self.space)):,}"
        return (
            f"The grid has {many} points, but an experiment may have at most {TRIALS_MAX:,} trials;"
            " lower `count` of some hyperparameters, or use the random or asha searcher."
        )

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        return fill(self.space, _parts_of(plan_of(self.space)).at(trial_number - 1))
