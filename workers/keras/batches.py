"""The protocol of training data of each kind: batches by position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class BatchesPosition:
    """Position of data of one kind, beyond the number of batches: for `Batches.seek`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Picklable values."""
    files: Mapping[str, bytes] = field(default_factory=dict)


class RankShare(NamedTuple):
    """A rank's part of a batch. If a batch has fewer records than ranks, some ranks have none: these compute the whole batch
    with weight 0, because all must take part in the averages."""

    batch: Any
    records: int
    total: int


class Batches(ABC):
    """Batches without end, epoch after epoch."""

    epoch_batches: int | None
    """Batches of one epoch. None: not known."""

    @abstractmethod
    def seek(self, batches: int, place: BatchesPosition | None) -> None:
        """Makes number `batches`, counted since the trial began, the next batch. `place`: result of `place` there."""

    @abstractmethod
    def next_batch(self) -> Any:
        """The next batch: nested tuples and dicts of arrays or tensors."""

    def place(self) -> BatchesPosition:
        """Position between two batches."""
        return BatchesPosition()

    data: Any = None
    """The user's data."""

    def own_generators(self) -> list[Any]:
        """Generators of the user's whose state follows from the position; they are not saved or restored elsewhere."""
        return []

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stops helper threads."""
