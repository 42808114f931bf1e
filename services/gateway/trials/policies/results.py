"""Differences between the results of two trials, and the verdict on a reproduction. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

OWN_FILES = ("tenuto.json", "tenuto_metadata.json", "manifest.json")
"""Files of a checkpoint that name its owner: they differ for every trial."""
WEIGHTS_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class TrialValidation:
    batches: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was saved, deleted or not: SHA-256 by file."""

    batches: int
    files: Mapping[str, str]


@dataclass(frozen=True)
class MetricPair:
    batches: int
    name: str
    a: float | None
    b: float | None

    @property
    def equal(self) -> bool:
        """True if the numbers are equal bit for bit; NaN equals NaN."""
        if self.a is None or self.b is None:
            return False
        return self.a == self.b or (math.isnan(self.a) and math.isnan(self.b))


@dataclass(frozen=True)
class FilePair:
    batches: int
    path: str
    a: str | None
    b: str | None

    @property
    def equal(self) -> bool:
        return self.a is not None and self.a == self.b

    @property
    def weights(self) -> bool:
        return self.path.endswith(WEIGHTS_SUFFIX)


def metric_pairs(a: Iterable[TrialValidation], b: Iterable[TrialValidation]) -> list[MetricPair]:
    """Every metric of every validation that both made at the same number of batches."""
    left, right = {item.batches: item.metrics for item in a}, {item.batches: item.metrics for item in b}
    return [
        MetricPair(batches, name, left[batches].get(name), right[batches].get(name))
        for batches in sorted(left.keys() & right.keys())
        for name in sorted({*left[batches], *right[batches]})
    ]


def first_difference(pairs: Sequence[MetricPair]) -> int | None:
    """Batches trained at the first validation that differs."""
    return next((pair.batches for pair in pairs if not pair.equal), None)


def shown_pairs(pairs: Sequence[MetricPair], most: int) -> Sequence[MetricPair]:
    """Pairs, at most `most`; if not all fit, from the first validation that differs on, as people look for that."""
    if len(pairs) <= most:
        return pairs
    first = next((index for index, pair in enumerate(pairs) if not pair.equal), 0)
    first = next(index for index, pair in enumerate(pairs) if pair.batches == pairs[first].batches)
    first = min(first, len(pairs) - most)
    return pairs[first : first + most]


def file_pairs(a: Iterable[Saved], b: Iterable[Saved]) -> list[FilePair]:
    """The files of the last checkpoint that both saved at the same number of batches: earlier ones lead to it."""
    left, right = {item.batches: item.files for item in a}, {item.batches: item.files for item in b}
    both = left.keys() & right.keys()
    if not both:
        return []
    last = max(both)
    names = {name for name in (*left[last], *right[last]) if name.rpartition("/")[2] not in OWN_FILES}
    return [FilePair(last, name, left[last].get(name), right[last].get(name)) for name in sorted(names)]


def weights_equal(pairs: Sequence[FilePair]) -> bool | None:
    """True if the weights are the same bytes; for checkpoints without weights files, all files. None: nothing to compare."""
    weights = [pair for pair in pairs if pair.weights] or list(pairs)
    return all(pair.equal for pair in weights) if weights else None


def metrics_equal(pairs: Sequence[MetricPair]) -> bool | None:
    """True if all compared metrics are equal. None: nothing to compare."""
    return all(pair.equal for pair in pairs) if pairs else None
