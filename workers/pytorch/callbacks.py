"""Callbacks of a user's trial, with state that is saved in every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PyTorchCallback:
    """Base class of callbacks. Override the methods that you need; return instances from `PyTorchTrial.build_callbacks`.

    Each hook runs in the training thread at a position that is the same however often the trial was interrupted, except
    `on_training_start` and `on_trial_end`, which run once per process, and those around checkpoints.
    """

    def on_training_start(self) -> None:
        """Called before the first batch that this process trains, after a checkpoint was loaded."""

    def on_epoch_start(self, epoch_idx: int) -> None:
        """Called before an epoch's first batch. `epoch_idx`: number of the epoch, from 0."""

    def on_epoch_end(self, epoch_idx: int) -> None:
        """Called after an epoch's last batch, and before the validation or checkpoint that follows it. `epoch_idx`: number of the
        epoch, from 0."""

    def on_validation_start(self) -> None:
        """Called before the validation set is evaluated."""

    def on_validation_end(self, metrics: Mapping[str, float]) -> None:
        """Called after the validation. `metrics`: the reported ones, by name. The place to step a scheduler that reacts to
        them."""

    def on_checkpoint_load_end(self) -> None:
        """Called after the state of a checkpoint was loaded."""

    def on_checkpoint_save_start(self, batches: int) -> None:
        """Called before the state is copied. `batches`: position in the trial. Changes made here are part of the checkpoint, so
        change nothing that training uses: checkpoints are saved wherever a trial is interrupted."""

    def on_checkpoint_save_end(self, checkpoint_id: str) -> None:
        """Called when the checkpoint is stored and reported."""

    def on_trial_end(self) -> None:
        """Called before the process ends in order, whether the trial goes on elsewhere or not. Not called when it is killed."""

    def state_dict(self) -> Mapping[str, Any]:
        """Returns the state to save with each checkpoint; empty: none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gets the result of `state_dict` (`state`) before training goes on from a checkpoint."""
