"""What is asked of a user's trial before it trains: mistakes are told where they are made, and not in the midst of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader

from tenuto.workers.harness.errors import UserError
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.lr_scheduler import LRScheduler
from tenuto.workers.pytorch.trial import PyTorchTrial


def check_trial(trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
    """Raises UserError."""
    kind = type(trial)
    if not context._models or not context._optimizers:
        raise UserError(
            f"{kind.__name__}.__init__ must wrap a model and an optimizer: self.model = context.wrap_model(...), "
            "self.optimizer = context.wrap_optimizer(...). What is not wrapped is not saved.",
            at=kind.__init__,
        )
    if kind.evaluate_batch is PyTorchTrial.evaluate_batch and not evaluates_full_dataset(trial):
        raise UserError(
            f"{kind.__name__} needs evaluate_batch or evaluate_full_dataset: the search compares their metrics.", at=kind
        )


def evaluates_full_dataset(trial: PyTorchTrial) -> bool:
    return type(trial).evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset


def checked_callbacks(trial: PyTorchTrial) -> dict[str, PyTorchCallback]:
    """Those that it builds, by name. Raises UserError."""
    callbacks = trial.build_callbacks()
    if not isinstance(callbacks, Mapping) or not all(isinstance(value, PyTorchCallback) for value in callbacks.values()):
        raise UserError(
            "build_callbacks must return a dict from names to instances of pytorch.PyTorchCallback.", at=trial.build_callbacks
        )
    return dict(callbacks)


def epoch_batches(trial: PyTorchTrial, context: PyTorchTrialContext, training: DataLoader[Any]) -> int | None:
    """Batches of an epoch of the training data; None: nobody knows. Raises UserError where something is given in epochs then."""
    given = trial.batches_per_epoch
    if given is not None and (type(given) is not int or given < 1):
        raise UserError(f"batches_per_epoch is {given!r}; it must be a whole number from 1.", at=type(trial))
    count = given or data.epoch_batches(training)
    by_epoch = [item for item in context._schedulers if item.step_mode is LRScheduler.StepMode.STEP_EVERY_EPOCH]
    if count is None and by_epoch:
        raise UserError(
            "a learning-rate scheduler steps every epoch, but the training data is a stream without a length; "
            "set batches_per_epoch in your trial, or wrap it with STEP_EVERY_BATCH.",
            at=type(trial),
        )
    if count is None and context._scaling.counts_epochs:
        raise UserError(
            "distributed.learning_rate_warmup is given in epochs, but the training data is a stream without a length; give "
            "it in batches, or set batches_per_epoch in your trial.",
            at=type(trial),
        )
    return count
