"""Position of a trial in its training, for the trial's own code."""

from __future__ import annotations

from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.harness.trial_context import TrialContext


class PositionedContext(TrialContext):
    def __init__(self, info: TrialInfo) -> None:
        super().__init__(info)
        self._batches = 0
        """Batches trained since the trial began."""
        self._epoch_batches: int | None = None
        """Batches of an epoch. None: not known, or not yet."""

    def current_train_batch(self) -> int:
        """Batches trained before this one, since the trial began."""
        return self._batches

    def current_train_epoch(self) -> int:
        """Number of the epoch that is trained, from 0. Raises UserError if the length of an epoch is not known."""
        return self._batches // self._epochs_known()

    def is_epoch_start(self) -> bool:
        """True in the first batch of an epoch. Raises UserError if the length of an epoch is not known."""
        return self._batches % self._epochs_known() == 0

    def is_epoch_end(self) -> bool:
        """True in the last batch of an epoch. Raises UserError if the length of an epoch is not known."""
        return (self._batches + 1) % self._epochs_known() == 0

    def _epochs_known(self) -> int:
        if self._epoch_batches is None:
            raise UserError(
                "the length of an epoch is not known: ask in train_batch, and for a stream without a length set "
                "batches_per_epoch in your trial."
            )
        return self._epoch_batches
