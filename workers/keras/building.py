"""Building a Keras trial: its model, and settings of the configuration that Keras keeps elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from tenuto.schemas.config.experiment import Distributed, Optimizations
from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.keras.trial import KerasTrial

POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
"""Keras's names for `optimizations.mixed_precision`."""


def apply(config: Mapping[str, Any]) -> None:
    """Applies the configuration. `config`: of the experiment, as plain data. Raises UserError for settings that Keras has in
    another place, or not at all."""
    _check(Distributed.model_validate(config.get("distributed") or {}))
    optimizations = Optimizations.model_validate(config.get("optimizations") or {})
    if optimizations.aggregation_frequency > 1:
        raise WillRepeat("optimizations.aggregation_frequency: in Keras, give the optimizer gradient_accumulation_steps instead.")
    if optimizations.clip_grad_norm is not None or optimizations.clip_grad_value is not None:
        raise WillRepeat(
            "optimizations.clip_grad_*: in Keras, give the optimizer global_clipnorm, clipnorm or clipvalue instead."
        )
    if optimizations.mixed_precision is not None:
        keras.config.set_dtype_policy(POLICIES[optimizations.mixed_precision])


def _check(distributed: Distributed) -> None:
    if distributed.strategy == "fsdp":
        raise WillRepeat(
            "distributed.strategy is fsdp, which divides PyTorch trials only; a Keras trial holds its whole model on each slot: "
            "remove the strategy."
        )
    if distributed.global_batch_size == "scale":
        raise WillRepeat(
            "distributed.global_batch_size: scale is for PyTorch trials; the batches of a Keras trial are those of all slots: "
            "remove it, and the rule for the learning rate."
        )
    if distributed.sync_batch_norm:
        raise WillRepeat(
            "distributed.sync_batch_norm is for PyTorch trials; in Keras, give the layer BatchNormalization(synchronized=True), "
            "which counts on the TensorFlow back end."
        )


def checked_model(trial: KerasTrial) -> Any:
    model = trial.build_model()
    if not isinstance(model, keras.Model):
        raise WillRepeat(f"build_model returned {type(model).__name__}; it must return a keras.Model.", at=trial.build_model)
    if not model.compiled:
        raise WillRepeat(
            "build_model returned a model that is not compiled; call model.compile(optimizer=..., loss=..., metrics=...) in it.",
            at=trial.build_model,
        )
    return model


def given_epoch(trial: KerasTrial) -> int | None:
    """Batches of an epoch as the trial says them; None: it leaves it to the data."""
    given = trial.batches_per_epoch
    if given is not None and (type(given) is not int or given < 1):
        raise UserError(f"batches_per_epoch is {given!r}; it must be a whole number from 1.", at=type(trial))
    return given


def build_variables(model: Any, batch: Any) -> None:
    """Builds variables that wait for the shapes of a batch."""
    try:
        model._symbolic_build(data_batch=batch)
    except RuntimeError as error:
        if isinstance(cause := error.__context__, Exception):  # Keras hides the user's error, and line, behind its own
            raise cause from None
        raise


_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def has_batch_hooks(callbacks: list[Any]) -> bool:
    """True if a callback reads the logs of each batch; only then they are fetched."""
    base = keras.callbacks.Callback
    return any(getattr(type(item), name) is not getattr(base, name) for item in callbacks for name in _BATCH_HOOKS)
