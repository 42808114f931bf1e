"""`pytorch.Batch` and `pytorch.Epoch`: lengths in code."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tenuto.workers.errors import UserError


@dataclass(frozen=True)
class TrainUnit:
    value: int | Container[int]

    def batches(self, what: str, epoch_batches: int | None) -> int | None:
        """The length in batches; None if it is never reached. Raises UserError."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise UserError(
                f"fit({what}={self!r}): a list of positions is not stood in for; give a number, after each of which it is due."
            )
        if not isinstance(self, Epoch):
            return self.value if 0 < self.value < NEVER else None
        if epoch_batches is None:
            raise UserError(f"fit({what}={self!r}): the training data has no length, so epochs cannot be counted; give Batch(n).")
        return self.value * epoch_batches if 0 < self.value < NEVER else None


NEVER = 2**62
"""Least length that means "never": users' code gives sys.maxsize."""


@dataclass(frozen=True)
class Batch(TrainUnit):
    pass


@dataclass(frozen=True)
class Epoch(TrainUnit):
    pass
