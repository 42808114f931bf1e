"""Lengths of a trial's batches in records: from the user's code, the sampler, or the batch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.batch_words import words
from tenuto.workers.pytorch.counting import records_of
from tenuto.workers.pytorch.trial import PyTorchTrial

UNKNOWN = (
    "how many records a validation batch has cannot be told from it ({batch}), so Reducer.AVG counts each batch once, a short "
    "last one as much as a full one: give {trial} a get_batch_length(self, batch)"
)
NO_BATCH = (
    "the validation data gave no batch, so there is nothing to compare: it is empty, smaller than a batch with drop_last, or its "
    "__iter__ gives its records only once, while each validation reads it from the beginning."
)
NOT_DIVIDED = (
    "a training batch cannot be divided among the slots, as how many records it has cannot be told from it ({batch}): give "
    "{trial} a get_batch_length(self, batch)."
)


class Lengths:
    def __init__(self, trial: PyTorchTrial, say: Callable[[str], None]) -> None:
        self._trial, self._name, self._say = trial, type(trial).__name__, say
        self._own = getattr(trial.get_batch_length, "__func__", None) is not PyTorchTrial.get_batch_length
        self._said = False

    def of(self, batch: Any, counted: int | None) -> int | None:
        """Records in a batch. `counted`: those that the sampler chose for it, if they are known. None: not known. Raises
        UserError."""
        if not self._own:
            return counted if counted is not None else records_of(batch)
        own = self._trial.get_batch_length
        length = own(batch)
        if not isinstance(length, int) or length < 0:
            raise UserError(f"get_batch_length returned {length!r}; it must return a number of records.", at=own)
        return length

    def to_divide(self, batch: Any, counted: int | None) -> int:
        """Records in a batch that is divided among the slots. Raises UserError if they are not known."""
        length = self.of(batch, counted)
        if length is None:
            raise UserError(NOT_DIVIDED.format(batch=words(batch), trial=self._name))
        return length

    def say_unknown(self, batch: str) -> None:
        """Tells the user, once, that an average has no weights. `batch`: one in words."""
        if not self._said:
            self._said = True
            self._say(UNKNOWN.format(batch=batch, trial=self._name))
