"""Chunks of a trial that a write touches. Chunks do not overlap; a new point goes into the chunk in whose range it is, or behind
the last one.

What is appended point by point is first collected in a small chunk. Once that is full, chunks at the end are joined while the one
before is not larger, as in a binary counter: so a trial has few chunks at any time, and each point is written again a few times
only, however slowly they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenuto.kernel.metrics.columns import POINTS_MAX, VALUES_MAX, Columns

SMALL_POINTS = 64
SMALL_VALUES = 8_192
"""A chunk with fewer points and numbers is written anew for each point that is appended: half a kilobyte for each metric."""
TAIL_CHUNKS = 16
"""Chunks that one write may join at most: those of a binary counter from SMALL_POINTS to POINTS_MAX, and some to spare."""


@dataclass(frozen=True)
class Extent:
    """A chunk as far as it is known without its numbers."""

    first: int
    last: int
    points: int
    metrics: int

    @property
    def small(self) -> bool:
        return self.points < SMALL_POINTS and self.points * self.metrics < SMALL_VALUES


@dataclass(frozen=True)
class Change:
    """Chunks to read, by index, and the new points that are merged with them, by index. No chunk: one is made."""

    chunk: int
    chunk_end: int
    new: int
    new_end: int


def changes(extents: Sequence[Extent], new: Columns) -> list[Change]:
    """`extents`: all chunks from the one in whose range the first new point is, and a few before the end; by batches."""
    if not extents:
        return [Change(0, 0, 0, len(new))]
    appended = int(np.searchsorted(new.batches, extents[-1].last, side="right"))
    tail = len(extents) - _joined(extents, len(new) - appended, len(new.names)) if appended < len(new) else len(extents)
    owners = np.searchsorted([extent.first for extent in extents], new.batches[:appended], side="right") - 1
    owners = np.maximum(owners, 0)  # what is before all chunks goes into the first
    found: list[Change] = []
    for chunk in np.unique(owners[owners < tail]).tolist():
        begin, end = np.searchsorted(owners, [chunk, chunk + 1]).tolist()
        found.append(Change(chunk, chunk + 1, begin, end))
    if appended < len(new):
        found.append(Change(tail, len(extents), int(np.searchsorted(owners, tail)), len(new)))
    return found


def _joined(extents: Sequence[Extent], points: int, metrics: int) -> int:
    """Number of chunks at the end that are joined with so many new points behind them."""
    count = 0
    for extent in reversed(extents[-TAIL_CHUNKS:]):
        together, wider = points + extent.points, max(metrics, extent.metrics)
        if together > POINTS_MAX or together * wider > VALUES_MAX or not (extent.small or extent.points <= points):
            break
        count, points, metrics = count + 1, together, wider
    return count
