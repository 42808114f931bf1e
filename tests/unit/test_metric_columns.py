"""Training metrics as columns, against a dictionary of points: what is merged, cut, packed and read again is what was measured,
and what is drawn has the extremes of each column."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.metrics import columns as columns_module
from tenuto.kernel.metrics import packing
from tenuto.kernel.metrics.columns import Columns, Point, columns_of, cut, merged, sets_of
from tenuto.kernel.metrics.extents import Extent, changes
from tenuto.kernel.metrics.packing import MetricChunk, packed, unpacked, unpacked_numbers, unpacked_steps
from tenuto.kernel.metrics.thinning import Curve, exponent_for, of_buckets, of_points, thinned

NUMBERS = st.one_of(
    st.floats(width=32), st.floats(), st.sampled_from([0.0, 1.0, 0.1, math.nan, math.inf, -math.inf, 1e308, 5e-324, 2.0**-149])
)
METRICS = st.dictionaries(st.sampled_from(["loss", "acc", "é/1", "x"]), NUMBERS, max_size=4)
POINTS = st.builds(
    Point,
    batches=st.one_of(st.integers(0, 40), st.integers(-(2**62), 2**62)),
    time_us=st.one_of(st.integers(0, 5), st.integers(-(2**63), 2**63 - 1)),
    run=st.integers(0, 3),
    metrics=METRICS,
)
Known = dict[int, tuple[int, int, dict[str, float]]]


def naive(points: Sequence[Point], known: Known | None = None) -> Known:
    """The newest measurement of a batch stands; of equally new ones the last."""
    found = dict(known or {})
    for point in points:
        if point.batches not in found or found[point.batches][0] <= point.time_us:
            found[point.batches] = point.time_us, point.run, dict(point.metrics)
    return found


def told(sets: Sequence[Columns]) -> list[str]:
    """NaN is not equal to itself, so as text; with the exact bits of other numbers."""
    rows = [
        (int(one.batches[i]), (int(one.times_us[i]), int(one.runs[i]), one.metrics(i))) for one in sets for i in range(len(one))
    ]
    return [repr(row) for row in rows]


def told_naive(known: Known) -> list[str]:
    return [
        repr((batches, (time, run, {name: metrics[name] for name in sorted(metrics)})))
        for batches, (time, run, metrics) in sorted(known.items())
    ]


def again(chunk: MetricChunk) -> Columns:
    return unpacked(chunk.points, chunk.wide, chunk.names, chunk.steps, chunk.numbers)


@given(st.lists(POINTS, min_size=1, max_size=60))
def test_columns_are_the_newest_points(points: list[Point]) -> None:
    found = columns_of(points)
    assert told([found]) == told_naive(naive(points))
    assert told([again(packed(found))]) == told([found])


class Store:
    """Chunks of one trial as the tracker keeps them."""

    def __init__(self) -> None:
        self.chunks: list[MetricChunk] = []
        self.written = 0

    def write(self, new: Columns) -> None:
        extents = [Extent(c.first_batches, c.last_batches, c.points, len(c.names)) for c in self.chunks]
        begin = max([0, *(i for i, extent in enumerate(extents) if extent.first <= new.batches[0])])
        begin = min(begin, max(len(extents) - 16, 0))
        made: list[MetricChunk] = []
        place = 0
        for change in changes(extents[begin:], new):
            old = self.chunks[begin + change.chunk : begin + change.chunk_end]
            parts = [*map(again, old), new.part(change.new, change.new_end)]
            whole = parts[0]
            for part in parts[1:]:
                whole = merged(whole, part)
            made += self.chunks[place : begin + change.chunk]
            result = [packed(part) for part in cut(whole)]
            self.written += len(whole)
            made += result
            place = begin + change.chunk_end
        self.chunks = made + self.chunks[place:]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(POINTS, min_size=1, max_size=25), min_size=1, max_size=12), st.sampled_from([3, 8, 4096]))
def test_chunks_are_the_newest_points_whatever_arrives(reports: list[list[Point]], points_max: int) -> None:
    before = columns_module.POINTS_MAX, packing.SUMMED_POINTS_MIN
    columns_module.POINTS_MAX = points_max
    packing.SUMMED_POINTS_MIN = 4
    try:
        store, known = Store(), Known()
        for points in reports:
            for columns in sets_of(points):
                store.write(columns)
            known = naive(points, known)
        assert told([again(chunk) for chunk in store.chunks]) == told_naive(known)
        firsts = [chunk.first_batches for chunk in store.chunks]
        assert firsts == sorted(set(firsts))
        assert all(chunk.points <= points_max for chunk in store.chunks)
        last = naive([], known)[max(known)][2]
        assert packed(again(store.chunks[-1])).last_metrics == store.chunks[-1].last_metrics
        assert set(last) == set(columns_of([Point(0, 0, 0, last)]).names)
    finally:
        columns_module.POINTS_MAX, packing.SUMMED_POINTS_MIN = before


def test_points_one_by_one_are_few_chunks_and_written_few_times() -> None:
    store = Store()
    for batches in range(5_000):
        store.write(columns_of([Point(batches, batches, 1, {"loss": 1.0 / (batches + 1)})]))
        assert len(store.chunks) <= 3 + 6, "a full one, and those of a binary counter from 64 points on"
    assert store.written < 45 * 5_000


def test_many_different_metrics_stay_within_bounds() -> None:
    points = [Point(b, b, 1, {f"m{b}-{i}": 1.0 for i in range(100)}) for b in range(120)]
    sets = list(sets_of(points))
    assert sum(map(len, sets)) == 120
    assert all(one.values.size <= columns_module.VALUES_MAX for one in sets)
    store = Store()
    for one in sets:
        store.write(one)
    assert told([again(chunk) for chunk in store.chunks]) == told_naive(naive(points))
    assert all(chunk.points * len(chunk.names) <= columns_module.VALUES_MAX for chunk in store.chunks)


def test_regular_points_in_single_precision_take_little_more_than_four_bytes() -> None:
    batches = np.arange(0, 409_600, 100)
    values = np.random.default_rng(1).random(4_096).astype(np.float32).astype(np.float64)[None]
    times = np.cumsum(np.random.default_rng(2).integers(9_000, 20_000, 4_096))
    chunk = packed(Columns(batches, times, np.ones_like(batches), ("loss",), values))
    assert len(chunk.steps) + len(chunk.numbers) < 6.1 * 4_096
    assert len(chunk.fine) + len(chunk.coarse) < 1.6 * 4_096


def drawn(sets: Sequence[Columns], name: str, exponent: int, first: int, end: int) -> Curve:
    """As the gateway reads chunks for a picture."""
    parts = []
    for columns in sets:
        chunk = packed(columns)
        if name not in chunk.names:
            continue
        at = chunk.names.index(name)
        if chunk.coarse_exponent <= exponent:
            size = len(chunk.coarse) // len(chunk.names)
            parts.append(of_buckets(chunk.coarse[at * size : (at + 1) * size]))
        elif chunk.fine_exponent <= exponent:
            size = len(chunk.fine) // len(chunk.names)
            parts.append(of_buckets(chunk.fine[at * size : (at + 1) * size]))
        else:
            size = 8 if at < chunk.wide else 4
            begin = chunk.points * (8 * at if at < chunk.wide else 4 * (chunk.wide + at))
            batches, times, _ = unpacked_steps(chunk.points, chunk.steps)
            values = unpacked_numbers(chunk.points, chunk.numbers[begin : begin + chunk.points * size])
            parts.append(of_points(batches, times, values))
    return thinned(parts, exponent, first, end)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_picture_has_the_extremes_of_each_column(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 600))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    distance = data.draw(st.sampled_from([1, 3, 100, 2**40]))
    batches = np.unique(rng.integers(0, max(count * distance // data.draw(st.integers(1, 4)), 1), count))
    values = data.draw(st.sampled_from([rng.random(len(batches)), rng.integers(0, 3, len(batches)).astype(float)]))
    values[rng.random(len(batches)) < data.draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))] = math.nan
    points = [
        Point(int(b), int(b) * 7 + 1, 1, {"other": 0.1} if rng.random() < 0.1 else {"loss": float(v), "other": 0.1})
        for b, v in zip(batches, values, strict=True)
    ]
    known = naive(points)
    whole = columns_of(points)
    size = data.draw(st.sampled_from([7, 100, 600]))
    sets = [whole.part(i, min(i + size, len(whole))) for i in range(0, len(whole), size)]
    before = packing.SUMMED_POINTS_MIN, packing.BUCKET_POINTS
    packing.SUMMED_POINTS_MIN, packing.BUCKET_POINTS = data.draw(st.sampled_from([(4, 2), (64, 32)]))
    try:
        pixels = data.draw(st.integers(1, 300))
        low = data.draw(st.integers(0, int(batches[-1])))
        high = data.draw(st.integers(low, int(batches[-1])))
        exponent = exponent_for(low, high, pixels)
        first, end = low >> exponent << exponent, ((high >> exponent) + 1) << exponent
        curve = drawn(sets, "loss", exponent, first, end)
    finally:
        packing.SUMMED_POINTS_MIN, packing.BUCKET_POINTS = before
    width = 1 << exponent
    expected: dict[int, list[tuple[int, float]]] = {}
    for at, (_, _, metrics) in sorted(known.items()):
        if first <= at < end and "loss" in metrics:
            expected.setdefault(at // width, []).append((at, metrics["loss"]))
    shown: dict[int, list[tuple[int, float]]] = {}
    for at, time, value in zip(curve.batches.tolist(), curve.times_us.tolist(), curve.values.tolist(), strict=True):
        assert time == at * 7 + 1
        assert repr(known[at][2]["loss"]) == repr(value), "a point that was measured"
        shown.setdefault(at // width, []).append((at, value))
    assert shown.keys() == expected.keys()
    for column, some in expected.items():
        numbers = [value for _, value in some if not math.isnan(value)]
        drawn_numbers = [value for _, value in shown[column]]
        assert len(drawn_numbers) <= (2 if exponent else 1)
        if numbers:
            assert (min(drawn_numbers), max(drawn_numbers)) == (min(numbers), max(numbers))
        else:
            assert all(map(math.isnan, drawn_numbers))
    assert curve.batches.tolist() == sorted(set(curve.batches.tolist()))


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 4_000))
def test_a_range_has_as_many_columns_as_pixels_and_fewer_than_twice_as_many(first: int, length: int, pixels: int) -> None:
    last = min(first + length, 2**62)
    exponent = exponent_for(first, last, pixels)
    columns = (last >> exponent) - (first >> exponent) + 1
    assert columns <= 2 * pixels + 2
    assert exponent == 0 or columns >= pixels
