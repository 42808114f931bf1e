"""Checks of a user's trial before it trains, so that mistakes are reported at their place, and not in the middle of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import DataLoader

from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.harness import signatures
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.batch_words import naming_batch
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.lr_scheduler import LRScheduler
from tenuto.workers.pytorch.metrics import EvaluationMetrics, Reducer
from tenuto.workers.pytorch.trial import PyTorchTrial

TRAIN_ARGUMENTS = ("batch", "epoch_idx", "batch_idx")
EVALUATE_ARGUMENTS = ("batch", "batch_idx")
METHODS: Mapping[str, tuple[str, ...]] = {
    "build_training_data_loader": (),
    "build_validation_data_loader": (),
    "build_callbacks": (),
    "evaluate_full_dataset": ("data_loader",),
    "evaluation_reducer": (),
    "get_batch_length": ("batch",),
    "state_dict": (),
    "load_state_dict": ("state",),
    "rebuild": ("state",),
}
"""Arguments of methods, except `train_batch` and `evaluate_batch`, which need not take all of theirs."""
HOOKS: Mapping[str, tuple[str, ...]] = {
    "on_training_start": (),
    "on_epoch_start": ("epoch_idx",),
    "on_epoch_end": ("epoch_idx",),
    "on_validation_start": (),
    "on_validation_end": ("metrics",),
    "on_checkpoint_load_end": (),
    "on_checkpoint_save_start": ("batches",),
    "on_checkpoint_save_end": ("checkpoint_id",),
    "on_trial_end": (),
    "state_dict": (),
    "load_state_dict": ("state",),
}
HOOKS_ELSEWHERE: Mapping[str, str] = {
    "on_trial_startup": "on_training_start(self)",
    "on_trial_shutdown": "on_trial_end(self)",
    "on_training_epoch_start": "on_epoch_start(self, epoch_idx)",
    "on_training_epoch_end": "on_epoch_end(self, epoch_idx)",
    "on_training_workload_end": "on_epoch_end(self, epoch_idx), or the metrics that train_batch returns",
    "on_validation_epoch_start": "on_validation_start(self)",
    "on_validation_epoch_end": "on_validation_end(self, metrics)",
    "on_checkpoint_load_start": "load_state_dict(self, state)",
    "on_checkpoint_end": "on_checkpoint_save_end(self, checkpoint_id)",
    "on_checkpoint_write_end": "on_checkpoint_save_end(self, checkpoint_id)",
    "on_checkpoint_upload_end": "on_checkpoint_save_end(self, checkpoint_id)",
}
"""Replacements of Determined's names."""


def check_trial(trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
    """Raises UserError for a trial that cannot be trained."""
    kind = type(trial)
    signatures.check_methods(trial, PyTorchTrial, METHODS)
    if not context._models or not context._optimizers:
        raise WillRepeat(
            f"{kind.__name__}.__init__ must wrap a model and an optimizer: self.model = context.wrap_model(...), "
            "self.optimizer = context.wrap_optimizer(...). What is not wrapped is not saved.",
            at=kind.__init__,
        )
    if kind.evaluate_batch is PyTorchTrial.evaluate_batch and not evaluates_full_dataset(trial):
        raise WillRepeat(
            f"{kind.__name__} needs evaluate_batch or evaluate_full_dataset: the search compares their metrics.", at=kind
        )
    EvaluationMetrics(trial.evaluation_reducer(), trial.evaluate_batch, trial.evaluation_reducer)


def doubts(trial: PyTorchTrial) -> list[str]:
    """Sentences about code that is allowed and probably not meant."""
    name = type(trial).__name__
    known = [*METHODS, "train_batch", "evaluate_batch"]
    found = [
        f"{name}.{method} is never called; is {meant} meant?" for method, meant in signatures.misspelt(trial, PyTorchTrial, known)
    ]
    if evaluates_full_dataset(trial) and type(trial).evaluate_batch is not PyTorchTrial.evaluate_batch:
        found.append(f"{name} has evaluate_full_dataset and evaluate_batch: the first is used, and the other never called.")
    return found


def elsewhere(trial: PyTorchTrial, context: PyTorchTrialContext) -> str:
    """Sentence about code that means something else than in Determined, for a trial that is written as for Determined; empty
    if there is none."""
    if context._by_determineds_rules or not (context._asked_per_slot or signatures.takes(trial.evaluate_batch, "batch_idx")):
        return ""
    notes = []
    scaled = (context.get_experiment_config().get("distributed") or {}).get("global_batch_size") == "scale"
    if context.may_have_several_slots and not context._asked_per_slot and not scaled:
        notes.append("a DataLoader's batch is that of all slots (distributed.global_batch_size: scale makes it that of one)")
    reducers = trial.evaluation_reducer()
    if evaluates_full_dataset(trial):
        if context.slots > 1:
            notes.append("evaluate_full_dataset runs on every slot")
    elif Reducer.AVG in (reducers.values() if isinstance(reducers, Mapping) else (reducers,)):
        notes.append("Reducer.AVG counts each record once, and not each batch")
    often = (LRScheduler.StepMode.STEP_EVERY_BATCH, LRScheduler.StepMode.STEP_EVERY_EPOCH)
    if context._optimizations.aggregation_frequency > 1 and any(item.step_mode in often for item in context._schedulers):
        notes.append("learning-rate schedulers step after each batch or epoch, also where gradients are only gathered")
    return f"unlike in Determined, {'; '.join(notes)}: see docs/from-determined.md." if notes else ""


def training_step(trial: PyTorchTrial) -> Callable[[Any, int, int], Any]:
    """Function that calls `train_batch` with those of (batch, epoch_idx, batch_idx) that it takes. Raises UserError."""
    return naming_batch(signatures.caller(trial, "train_batch", TRAIN_ARGUMENTS))


def evaluation_step(trial: PyTorchTrial) -> Callable[[Any, int], Any]:
    """Function that calls `evaluate_batch` with (batch, batch_idx), or with the batch alone. Raises UserError."""
    return naming_batch(signatures.caller(trial, "evaluate_batch", EVALUATE_ARGUMENTS, optional=1))


def evaluates_full_dataset(trial: PyTorchTrial) -> bool:
    return type(trial).evaluate_full_dataset is not PyTorchTrial.evaluate_full_dataset


def checked_callbacks(trial: PyTorchTrial) -> dict[str, PyTorchCallback]:
    """The trial's callbacks, by name. Raises UserError."""
    callbacks = trial.build_callbacks()
    if not isinstance(callbacks, Mapping) or not all(isinstance(value, PyTorchCallback) for value in callbacks.values()):
        raise WillRepeat(
            "build_callbacks must return a dict from names to instances of pytorch.PyTorchCallback.", at=trial.build_callbacks
        )
    for callback in callbacks.values():
        check_callback(callback)
    return dict(callbacks)


def check_callback(callback: PyTorchCallback) -> None:
    """Raises UserError for a hook that would never be called, or cannot be called with its arguments."""
    kind = type(callback)
    for name in signatures.unknown_hooks(callback, PyTorchCallback, HOOKS):
        hint = HOOKS_ELSEWHERE.get(name) or signatures.near(name, HOOKS)
        what_to_do = f"write {hint} instead." if hint else f"hooks are {', '.join(HOOKS)}."
        raise WillRepeat(
            f"{kind.__name__}.{name} would never be called, as there is no such hook: {what_to_do}", at=getattr(callback, name)
        )
    signatures.check_methods(callback, PyTorchCallback, HOOKS)
    save_start = callback.on_checkpoint_save_start
    if signatures.first_argument(save_start) == "checkpoint":
        raise WillRepeat(
            f"{kind.__name__}.on_checkpoint_save_start is given the number of batches, and not the checkpoint as in Determined: "
            "write def on_checkpoint_save_start(self, batches), and give what is to be saved to state_dict.",
            at=save_start,
        )


def copies_on_the_way(config: Mapping[str, Any]) -> bool:
    """True if the state is copied during training: for checkpoints that are not only made where it waits for the search."""
    beside = (config.get("checkpoint_storage") or {}).get("async_save", True)
    periods = ("min_validation_period", "min_checkpoint_period", "checkpoint_period_minutes")
    return beside and any(config.get(name) for name in periods)


def epoch_batches(trial: PyTorchTrial, context: PyTorchTrialContext, training: DataLoader[Any]) -> int | None:
    """Batches of an epoch of the training data; None: not known. Raises UserError if a length is then given in epochs."""
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
