"""Evaluates a model on the validation data, alone or as one of several ranks."""

from __future__ import annotations

from typing import Any

from tenuto.workers.keras import data
from tenuto.workers.keras.backends import Backend
from tenuto.workers.keras.trial import KerasTrial


def evaluate(trial: KerasTrial, model: Any, backend: Backend, given: Any, callbacks: Any, batch_size: int) -> Any:
    """Like `model.evaluate`. `given`: the validation data; `callbacks`: a CallbackList. Returns the metrics' values by name."""
    if backend.ranks > 1:
        return _evaluate_share(trial, model, backend, given, callbacks, batch_size)
    arguments: dict[str, Any] = {"x": given}
    if isinstance(given, tuple):
        arguments = dict(zip(("x", "y", "sample_weight"), given, strict=False)) | {"batch_size": batch_size}
    return model.evaluate(**arguments, steps=trial.validation_batches, callbacks=callbacks, verbose=0, return_dict=True)


def _evaluate_share(trial: KerasTrial, model: Any, backend: Backend, given: Any, callbacks: Any, batch_size: int) -> Any:
    """Evaluates this rank's share of each batch. The metrics' variables are summed over the ranks."""
    batches = data.validation_batches(given, trial.build_validation_data, batch_size)
    model.reset_metrics()
    backend.begin_validation(model)
    callbacks.on_test_begin()
    logs: Any = {}
    for number, batch in enumerate(batches()):
        if number == trial.validation_batches:
            break
        callbacks.on_test_batch_begin(number)
        if (share := backend.to_batch(batch, training=False)) is not None:
            logs = model.test_function([share])
        callbacks.on_test_batch_end(number, logs)
    logs = backend.metrics(model, logs, training=False)
    callbacks.on_test_end(logs)
    return logs
