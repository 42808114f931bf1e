"""Warnings about parts of a model, and callbacks, with a period longer than the trial: they would never act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from tenuto.workers.harness import accumulated_gradients
from tenuto.workers.keras.checkpoint import optimizers_of

_SETTING = "gradient_accumulation_steps"


def doubts(model: Any, callbacks: Sequence[Any], full_batches: int, epoch_batches: int | None) -> Iterator[str]:
    """Sentences for the user. `full_batches`: full length of a trial. `epoch_batches`: None if not known. Raises WillRepeat if an
    optimizer would never step."""
    for gathered in sorted({_gathered(item) for item in optimizers_of(model)}):
        if (sentence := accumulated_gradients.doubt(_SETTING, gathered, full_batches)) is not None:
            yield sentence
    if epoch_batches is not None and full_batches < epoch_batches:
        for item in callbacks:
            if _waits_for_epochs(item):
                yield accumulated_gradients.epoch_that_never_ends(
                    f"{type(item).__name__}.on_epoch_end", full_batches, epoch_batches
                )


def untrained(model: Any, trained: int) -> str | None:
    """Sentence about a validation after `trained` batches, if no optimizer has stepped yet."""
    least = min((_gathered(item) for item in optimizers_of(model)), default=1)
    return accumulated_gradients.untrained(_SETTING, least, trained)


def _gathered(optimizer: Any) -> int:
    """Batches of one step. An optimizer that scales losses leaves the accumulation to its inner optimizer."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return getattr(inner, _SETTING, None) or 1


def _waits_for_epochs(callback: Any) -> bool:
    """True if the callback has a hook for the end of an epoch. LambdaCallback sets its hooks in the object."""
    base = keras.callbacks.Callback
    return "on_epoch_end" in vars(callback) or type(callback).on_epoch_end is not base.on_epoch_end
