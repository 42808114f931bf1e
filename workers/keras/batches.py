"""What each kind of training data offers: batches by position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Place:
    """Where a kind of data goes on, beyond the number of batches: for `Batches.seek`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Picklable."""
    files: Mapping[str, bytes] = field(default_factory=dict)


class Share(NamedTuple):
    """A rank's part of a batch. Of a batch with fewer records than ranks some have none: these compute the whole batch along,
    because all must take part in the averages, and it counts for nothing."""

    batch: Any
    records: int
    total: int


class Batches(ABC):
    """Batches without end, epoch after epoch."""

    epoch_batches: int | None
    """None: not known."""

    @abstractmethod
    def seek(self, batches: int, place: Place | None) -> None:
        """The next batch is number `batches`, counted since the trial began. `place`: what `place` returned there."""

    @abstractmethod
    def next_batch(self) -> Any:
        """Nested tuples and dicts of arrays or tensors."""

    def place(self) -> Place:
        """Between two batches."""
        return Place()

    data: Any = None
    """What the user gave."""

    def own_generators(self) -> list[Any]:
        """Generators of the user's whose state follows from the position: nobody else saves or restores them."""
        return []

    def close(self) -> None:  # noqa: B027 - most have nothing to stop
        """Stop helper threads."""
