"""Warnings, before a trial trains, about settings with a period longer than the trial: they would never act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenuto.workers.harness import accumulated_gradients
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.lr_scheduler import LRScheduler

_FIELD = "optimizations.aggregation_frequency"


def doubts(context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback], full_batches: int) -> Iterator[str]:
    """Sentences for the user. `full_batches`: full length of a trial. Raises WillRepeat if no optimizer would ever step."""
    gathered = context._optimizations.aggregation_frequency
    if (sentence := accumulated_gradients.doubt(_FIELD, gathered, full_batches)) is not None:
        yield sentence
    for item in context._schedulers:
        if _steps(item, full_batches, context._epoch_batches, gathered) == 0:
            mode = f"LRScheduler.StepMode.{item.step_mode.name}"
            yield (
                f"{type(item.scheduler).__name__} never steps: it is wrapped with {mode} and frequency {item.frequency}, and the "
                f"trial's full length is {accumulated_gradients.batches(full_batches)}, so its learning rate stays"
            )
    epoch = context._epoch_batches
    if epoch is not None and full_batches < epoch and not context._by_determineds_rules:
        for callback in callbacks.values():
            if type(callback).on_epoch_end is not PyTorchCallback.on_epoch_end:
                yield accumulated_gradients.epoch_that_never_ends(f"{type(callback).__name__}.on_epoch_end", full_batches, epoch)


def untrained(context: PyTorchTrialContext) -> str | None:
    """Sentence about a validation here, if no optimizer has stepped yet."""
    return accumulated_gradients.untrained(_FIELD, context._optimizations.aggregation_frequency, context._batches)


def _steps(item: LRScheduler, batches: int, epoch_batches: int | None, gathered: int) -> int | None:
    """Steps of a scheduler in so many batches. None: not known, or left to its user's code."""
    if item.step_mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
        return batches // item.frequency
    if item.step_mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
        return batches // gathered // item.frequency
    if item.step_mode is LRScheduler.StepMode.STEP_EVERY_EPOCH and epoch_batches is not None:
        return batches // (epoch_batches * item.frequency)
    return None
