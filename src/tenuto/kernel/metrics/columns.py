"""Points of one trial as columns, and the rule by which two sets of them become one: the newest measurement of a batch stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]
ABSENT_BITS = 0x7FF8_0000_0000_0A5E
"""A NaN that stands for "this point lacks this metric". A NaN that was measured has other bits (`_measured`)."""
_ABSENT: Numbers = np.array([ABSENT_BITS], np.int64).view(np.float64)
VALUES_MAX = 1 << 18
"""Most numbers of one set of columns, 2 MB: what a write merges and a reader decodes at once. Each point takes one for every
metric of the set, also for those that it lacks."""
POINTS_MAX = 4_096
"""Most points of one set: so many that a million points are some hundred rows, and so few that a small range reads little."""


class Point(NamedTuple):
    batches: int
    time_us: int
    run: int
    """Number of the allocation, within its trial, that measured it."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Columns:
    """Each point is at a number of batches of its own; the points are in this order."""

    batches: Integers
    times_us: Integers
    runs: Integers
    names: tuple[str, ...]
    """Names of the metrics, sorted; each is present at one point at least."""
    values: Numbers
    """One row per metric, one column per point; ABSENT_BITS where the point lacks the metric."""

    def __len__(self) -> int:
        return len(self.batches)

    def metrics(self, index: int) -> dict[str, float]:
        """Metrics of one point."""
        values = self.values[:, index]
        if not absent(values).any():
            return dict(zip(self.names, values.tolist(), strict=True))
        lacks = absent(values)
        return {name: float(values[row]) for row, name in enumerate(self.names) if not lacks[row]}

    def part(self, first: int, end: int) -> Columns:
        """Points by their index, and the metrics that these have."""
        values = self.values[:, first:end]
        kept = np.atleast_1d(~absent(values).all(axis=1))
        names = tuple(name for row, name in enumerate(self.names) if kept[row])
        values = values[kept]
        return Columns(self.batches[first:end], self.times_us[first:end], self.runs[first:end], names, values)


def absent(values: Numbers) -> NDArray[np.bool_]:
    """True where a point lacks the metric."""
    found: NDArray[np.bool_] = np.ascontiguousarray(values).view(np.int64) == ABSENT_BITS
    return found


def columns_of(points: Sequence[Point]) -> Columns:
    """`points`: in the order of arrival, of which the newest at each number of batches is kept; of equally new ones the last.
    Integers must fit into 64 bits."""
    batches, times = (np.array([point[place] for point in points], np.int64) for place in (0, 1))
    chosen = _newest(batches, times)
    kept = [points[index] for index in chosen.tolist()]
    metrics = [point.metrics for point in kept]
    names = tuple(sorted({name for one in metrics for name in one}))
    values = np.empty((len(names), len(kept)))
    for row, name in enumerate(names):
        values[row] = [one.get(name, math.nan) for one in metrics]
    _measured(values)
    if any(len(one) < len(names) for one in metrics):
        lacks = np.array([[name not in one for one in metrics] for name in names], bool).reshape(values.shape)
        values[lacks] = _ABSENT[0]
    runs = np.array([point.run for point in kept], np.int64)
    return Columns(batches[chosen], times[chosen], runs, names, values)


def sets_of(points: Sequence[Point]) -> Iterator[Columns]:
    """The points in one set or, where they are many or differ in their metrics, in several of bounded size. `points`: in the
    order of arrival."""
    first, names = 0, set[str]()
    for index, point in enumerate(points):
        joined = names | point.metrics.keys() if not names >= point.metrics.keys() else names
        count = index - first + 1
        if count > 1 and (count > POINTS_MAX or count * len(joined) > VALUES_MAX):
            yield columns_of(points[first:index])
            first, joined = index, set(point.metrics)
        names = joined
    if first < len(points):
        yield columns_of(points[first:])


def merged(old: Columns, new: Columns) -> Columns:
    """Both together; where both have a point at some batches, the newer one, and of equally new ones that of `new`."""
    if old.names == new.names and old.batches[-1] < new.batches[0]:
        return joined([old, new])
    names = tuple(sorted({*old.names, *new.names}))
    values = np.full((len(names), len(old) + len(new)), _ABSENT[0])
    place = {name: row for row, name in enumerate(names)}
    values[[place[name] for name in old.names], : len(old)] = old.values
    values[[place[name] for name in new.names], len(old) :] = new.values
    batches, times, runs = (
        np.concatenate(pair) for pair in ((old.batches, new.batches), (old.times_us, new.times_us), (old.runs, new.runs))
    )
    chosen = _newest(batches, times)
    whole = Columns(batches[chosen], times[chosen], runs[chosen], names, values[:, chosen])
    return whole.part(0, len(whole))


def joined(sets: Sequence[Columns]) -> Columns:
    """Sets with the same metrics, each behind the one before it."""
    return Columns(
        np.concatenate([one.batches for one in sets]),
        np.concatenate([one.times_us for one in sets]),
        np.concatenate([one.runs for one in sets]),
        sets[0].names,
        np.concatenate([one.values for one in sets], axis=1),
    )


def cut(whole: Columns) -> list[Columns]:
    """Parts of bounded size, in order."""
    if len(whole) <= 1 or (len(whole) <= POINTS_MAX and len(whole) * len(whole.names) <= VALUES_MAX):
        return [whole]
    middle = len(whole) // 2  # and not as much as fits, of which the next point would cut a little off again
    return [*cut(whole.part(0, middle)), *cut(whole.part(middle, len(whole)))]


def _newest(batches: Integers, times: Integers) -> Integers:
    """Indexes of the newest point at each number of batches, by batches; of equally new ones the last."""
    if len(batches) == 1 or bool((batches[1:] > batches[:-1]).all()):
        return np.arange(len(batches))
    order = np.lexsort((np.arange(len(batches)), times, batches))
    ordered = batches[order]
    last: Integers = order[np.append(ordered[1:] != ordered[:-1], True)]
    return last


def _measured(values: Numbers) -> None:
    """Gives every NaN the same bits, which are not ABSENT_BITS."""
    values[np.isnan(values)] = math.nan
