"""Bytes of a chunk: what a row of the table `trial_metric_chunks` holds, and what readers make of it.

Numbers are big-endian, as PostgreSQL sends them, so that a migration can write them with SQL alone.

- `steps`: batches, times and runs of the points, each as a column of integers. A column begins with a byte: 255, then its
integers in 8 bytes each; or 0, 1, 2 or 4, the bytes of each difference, then the first integer (8 bytes), the smallest difference
of two neighbours (8), and how much larger each difference is. Points at regular distances so take no bytes beyond the first 17.
- `numbers`: a column for each metric, in the order of `names`. The first `wide` of them have 8 bytes a value; the others only
values that 4 bytes hold exactly, as training in single precision gives them.
- `fine` and `coarse`: extremes of each metric in buckets of the width 2^exponent batches, for pictures of long ranges: see
`thinning.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tenuto.kernel.metrics.columns import ABSENT_BITS, Columns, Integers, Numbers, absent
from tenuto.kernel.metrics.thinning import EXTREME, NEVER, extremes

NARROW_ABSENT_BITS = 0x7FC0_0A5E
_PLAIN = 255
_INTEGER_BYTES = 8
_HEAD_BYTES = 17
BUCKET_POINTS = 32
"""Points in a bucket of `fine`, at least and on average: with fewer, the buckets would take more bytes than the points."""
COARSE_BITS = 5
"""A bucket of `coarse` is 32 of `fine`."""
SUMMED_POINTS_MIN = 256
"""A chunk with fewer points has no buckets: its points are read as quickly."""
EXPONENT_MAX = 62


@dataclass(frozen=True)
class MetricChunk:
    """A row of the table, without its key. `points` and `wide` say how the bytes are read."""

    first_batches: int
    last_batches: int
    last_us: int
    points: int
    wide: int
    fine_exponent: int
    """Width of a bucket as a power of two; EXPONENT_MAX + 1: there are none. The same of `coarse`."""
    fine_count: int
    coarse_exponent: int
    coarse_count: int
    names: tuple[str, ...]
    steps: bytes
    numbers: bytes
    fine: bytes
    coarse: bytes
    last_metrics: str
    """Metrics of the last point, as JSON; NaN and infinities are strings."""


CHUNK_FIELDS = tuple(field.name for field in fields(MetricChunk))


def packed(columns: Columns) -> MetricChunk:
    narrow = [_is_narrow(row) for row in columns.values]
    order = [*(i for i, is_narrow in enumerate(narrow) if not is_narrow), *(i for i, is_narrow in enumerate(narrow) if is_narrow)]
    wide = len(order) - sum(narrow)
    numbers = [columns.values[row].astype(">f8").tobytes() for row in order[:wide]]
    numbers += [_narrowed(columns.values[row]) for row in order[wide:]]
    fine_exponent, fine, coarse_exponent, coarse = _buckets(columns, order)
    last = {name: _json_number(value) for name, value in columns.metrics(len(columns) - 1).items()}
    return MetricChunk(
        first_batches=int(columns.batches[0]),
        last_batches=int(columns.batches[-1]),
        last_us=int(columns.times_us[-1]),
        points=len(columns),
        wide=wide,
        fine_exponent=fine_exponent,
        fine_count=len(fine) // (EXTREME.itemsize * max(len(order), 1)),
        coarse_exponent=coarse_exponent,
        coarse_count=len(coarse) // (EXTREME.itemsize * max(len(order), 1)),
        names=tuple(columns.names[row] for row in order),
        steps=b"".join(_integers(column) for column in (columns.batches, columns.times_us, columns.runs)),
        numbers=b"".join(numbers),
        fine=fine,
        coarse=coarse,
        last_metrics=json.dumps(last),
    )


def unpacked(
    points: int, wide: int, names: Sequence[str], steps: bytes, numbers: bytes, only: Collection[str] | None = None
) -> Columns:
    """`only`: these metrics; None: all."""
    batches, times, runs = unpacked_steps(points, steps)
    order = sorted((row for row, name in enumerate(names) if only is None or name in only), key=names.__getitem__)
    values = np.empty((len(order), points))
    for place, row in enumerate(order):
        size = points * (8 if row < wide else 4)
        begin = row * points * 8 if row < wide else (wide + row) * points * 4
        values[place] = unpacked_numbers(points, numbers[begin : begin + size])
    return Columns(batches, times, runs, tuple(names[row] for row in order), values)


def unpacked_steps(points: int, steps: bytes) -> tuple[Integers, Integers, Integers]:
    batches, times, runs = _columns_of_integers(points, steps)
    return batches, times, runs


def unpacked_numbers(points: int, column: bytes) -> Numbers:
    """One metric; ABSENT_BITS where a point lacks it."""
    if len(column) == points * 8:
        return np.frombuffer(column, ">f8").astype(np.float64)
    values = np.frombuffer(column, ">f4").astype(np.float64)
    values[np.frombuffer(column, ">i4") == NARROW_ABSENT_BITS] = np.array([ABSENT_BITS], np.int64).view(np.float64)[0]
    return values


def _is_narrow(values: Numbers) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        back = values.astype(np.float32).astype(np.float64)
    return bool(((back == values) | np.isnan(values)).all())


def _narrowed(values: Numbers) -> bytes:
    narrow = values.astype(np.float32)
    narrow[np.isnan(values)] = math.nan
    bits = narrow.view(np.int32)
    bits[absent(values)] = NARROW_ABSENT_BITS
    return bits.astype(">i4").tobytes()


def _integers(column: Integers) -> bytes:
    """Differences wrap around at 64 bits, in both directions alike."""
    with np.errstate(over="ignore"):
        differences = np.diff(column)
        if not len(differences):
            return bytes([_PLAIN]) + column.astype(">i8").tobytes()
        smallest = differences.min()
        above = (differences - smallest).view(np.uint64)
    largest = int(above.max())
    size = next((size for size in (0, 1, 2, 4) if largest < 1 << (8 * size)), _PLAIN)
    if size == _PLAIN:
        return bytes([_PLAIN]) + column.astype(">i8").tobytes()
    head = bytes([size]) + np.array([column[0], smallest], ">i8").tobytes()
    return head + (above.astype(f">u{size}").tobytes() if size else b"")


def _columns_of_integers(points: int, data: bytes) -> Iterator[Integers]:
    place = 0
    for _ in range(3):
        size = data[place]
        if size == _PLAIN:
            yield np.frombuffer(data, ">i8", points, place + 1).astype(np.int64)
            place += 1 + points * _INTEGER_BYTES
            continue
        first, smallest = np.frombuffer(data, ">i8", 2, place + 1).astype(np.int64)
        place += _HEAD_BYTES
        column = np.full(points, smallest)
        column[0] = first
        if size:
            column[1:] += np.frombuffer(data, f">u{size}", points - 1, place).astype(np.int64)
            place += size * (points - 1)
        with np.errstate(over="ignore"):
            yield np.cumsum(column)


def _buckets(columns: Columns, order: Sequence[int]) -> tuple[int, bytes, int, bytes]:
    """Exponent and bytes of `fine`, and of `coarse`."""
    none = EXPONENT_MAX + 1, b""
    if len(columns) < SUMMED_POINTS_MIN or not order:
        return *none, *none
    span = int(columns.batches[-1]) - int(columns.batches[0]) + 1
    exponent = (BUCKET_POINTS * span // len(columns)).bit_length()
    if exponent + COARSE_BITS > EXPONENT_MAX:
        return *none, *none
    coarse = exponent + COARSE_BITS
    return exponent, _summed(columns, order, exponent), coarse, _summed(columns, order, coarse)


def _summed(columns: Columns, order: Sequence[int], exponent: int) -> bytes:
    buckets = np.unique(columns.batches >> exponent)
    sums: Any = np.zeros((len(order), len(buckets)), EXTREME)
    sums["low_at"] = NEVER
    for place, row in enumerate(order):
        values = columns.values[row]
        there = ~absent(values)
        batches, times, present = columns.batches[there], columns.times_us[there], values[there]
        if not len(batches):
            continue
        low, high = extremes(batches >> exponent, present)
        at = np.searchsorted(buckets, batches[low] >> exponent)
        for name, chosen in (("low", low), ("high", high)):
            sums[name][place, at] = present[chosen]
            sums[f"{name}_at"][place, at] = batches[chosen]
            sums[f"{name}_us"][place, at] = times[chosen]
    return bytes(sums.tobytes())


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
