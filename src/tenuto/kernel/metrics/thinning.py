"""Fewer points for a picture: of each column of pixels the smallest and the largest value, at the batches where these were
measured.

Columns have a width of 2^exponent batches and begin at multiples of it. So a bucket of a chunk, whose width is a smaller power of
two, lies in one column, and the extremes of a column are among those of its buckets: what is drawn from buckets has the same
extremes as what is drawn from all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenuto.kernel.metrics.columns import Integers, Numbers, absent

EXTREME = np.dtype(
    [("low", "<f8"), ("high", "<f8"), ("low_at", "<i8"), ("high_at", "<i8"), ("low_us", "<i8"), ("high_us", "<i8")]
)
"""One bucket: smallest and largest value, and batches and times of both. NaN: it has no other values."""
NEVER = -(2**63)
"""`low_at` of a bucket in which the metric was not measured."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of one metric. Batches may repeat and be out of order within a bucket until the curve is thinned."""

    batches: Integers
    times_us: Integers
    values: Numbers

    def __len__(self) -> int:
        return len(self.batches)


def exponent_for(first: int, last: int, pixels: int) -> int:
    """Exponent of the widest columns of which the range has at least `pixels`, and at most twice as many; 0 if it has fewer
    batches."""
    return max((max(last - first, 1) // pixels).bit_length() - 1, 0)


def of_points(batches: Integers, times_us: Integers, values: Numbers) -> Curve:
    """Points that have the metric."""
    lacks = absent(values)
    if not lacks.any():
        return Curve(batches, times_us, values)
    there = ~lacks
    return Curve(batches[there], times_us[there], values[there])


def of_buckets(data: bytes) -> Curve:
    """Two points of each bucket in which the metric was measured."""
    buckets = np.frombuffer(data, EXTREME)
    buckets = buckets[buckets["low_at"] != NEVER]
    return Curve(
        np.stack([buckets["low_at"], buckets["high_at"]], axis=1).ravel(),
        np.stack([buckets["low_us"], buckets["high_us"]], axis=1).ravel(),
        np.stack([buckets["low"], buckets["high"]], axis=1).ravel(),
    )


def thinned(parts: Sequence[Curve], exponent: int, first: int, end: int) -> Curve:
    """The extremes in each column from batches `first` to before `end`, which are multiples of the column's width. `parts`: one
    behind the other. A column of NaN alone has one of them."""
    batches = np.concatenate([np.empty(0, np.int64), *(part.batches for part in parts)])
    times = np.concatenate([np.empty(0, np.int64), *(part.times_us for part in parts)])
    values = np.concatenate([np.empty(0, np.float64), *(part.values for part in parts)])
    inside = (batches >= first) & (batches <= end - 1)  # `end` may be one more than 64 bits hold
    if not inside.all():
        batches, times, values = batches[inside], times[inside], values[inside]
    if exponent and len(batches):
        low, high = extremes(batches >> exponent, values)
        swapped = batches[low] > batches[high]
        pairs = np.stack([np.where(swapped, high, low), np.where(swapped, low, high)], axis=1)
        once = np.stack([np.ones(len(low), bool), batches[low] != batches[high]], axis=1)
        chosen = pairs[once]
        batches, times, values = batches[chosen], times[chosen], values[chosen]
    return Curve(batches, times, values)


def extremes(columns: Integers, values: Numbers) -> tuple[Integers, Integers]:
    """Indexes of the smallest and of the largest value in each run of equal `columns`; the first of equal ones. NaN counts only
    where there is nothing else."""
    starts = np.flatnonzero(np.append(True, columns[1:] != columns[:-1]))
    run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(columns))))
    return _first_of(run, values, np.fmin.reduceat(values, starts)), _first_of(run, values, np.fmax.reduceat(values, starts))


def _first_of(run: Integers, values: Numbers, wanted: Numbers) -> Integers:
    searched = wanted[run]
    hits = np.flatnonzero((values == searched) | np.isnan(searched))
    runs = run[hits]
    first: Integers = hits[np.append(True, runs[1:] != runs[:-1])]
    return first
