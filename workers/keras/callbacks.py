"""Keras callbacks, and their saved state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness import signatures
from tenuto.workers.keras.trial import KerasTrial

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.ndarray, np.generic)
_LIBRARIES = ("keras", "tensorflow", "tf_keras")
"""Libraries whose own callbacks are not checked."""
METHODS: Mapping[str, tuple[str, ...]] = {
    "build_model": (),
    "build_training_data": (),
    "build_validation_data": (),
    "build_callbacks": (),
    "state_dict": (),
    "load_state_dict": ("state",),
    "rebuild": ("model", "state"),
}
ELSEWHERE: Mapping[str, str] = {
    "on_train_workload_begin": "on_epoch_begin(self, epoch, logs)",
    "on_train_workload_end": "on_epoch_end(self, epoch, logs)",
    "on_checkpoint_end": "state_dict(self), for what is to be saved; there is no hook after it",
    "get_state": "state_dict(self)",
    "load_state": "load_state_dict(self, state)",
    "keras_callbacks": "build_callbacks(self)",
    "build_training_data_loader": "build_training_data(self)",
    "build_validation_data_loader": "build_validation_data(self)",
}
"""Replacements of Determined's names."""
_NOT_STATE = frozenset({"model", "_model", "params", "validation_data"})


def check_trial(trial: KerasTrial) -> list[str]:
    """Sentences about code that is allowed and probably not meant. Raises UserError for methods that cannot be called, or
    would never be."""
    name = type(trial).__name__
    signatures.check_methods(trial, KerasTrial, METHODS)
    for method in ("keras_callbacks", "build_training_data_loader", "build_validation_data_loader"):
        if callable(function := getattr(trial, method, None)) and not signatures.is_overridden(
            trial, KerasTrial, ELSEWHERE[method].partition("(")[0]
        ):
            raise WillRepeat(f"{name}.{method} would never be called: write {ELSEWHERE[method]} instead.", at=function)
    return [
        f"{name}.{method} is never called; is {meant} meant?" for method, meant in signatures.misspelt(trial, KerasTrial, METHODS)
    ]


def check_callback(callback: Any) -> None:
    """Raises UserError for a hook that Keras would never call, or cannot call with its arguments."""
    kind, base = type(callback), keras.callbacks.Callback
    if kind.__module__.partition(".")[0] in _LIBRARIES:
        return
    hooks = {name: ("epoch", "logs") if "epoch" in name else ("logs",) for name in dir(base) if name.startswith("on_")}
    hooks |= {name: ("batch", "logs") for name in hooks if "batch" in name}
    elsewhere = [name for name in ("get_state", "load_state") if callable(getattr(callback, name, None))]
    for name in (*signatures.unknown_hooks(callback, base, hooks), *elsewhere):
        hint = ELSEWHERE.get(name) or signatures.near(name, hooks)
        if name in elsewhere and callable(getattr(callback, "state_dict", None)):
            continue  # written for both
        what_to_do = f"write {hint} instead." if hint else f"hooks are {', '.join(sorted(hooks))}."
        raise WillRepeat(f"{kind.__name__}.{name} would never be called: {what_to_do}", at=getattr(callback, name))
    signatures.check_methods(callback, base, hooks)


def checked(trial: Any) -> list[Any]:
    """The trial's callbacks. Raises UserError for objects that are no Keras callbacks."""
    callbacks = trial.build_callbacks()
    if not isinstance(callbacks, Sequence) or not all(isinstance(item, keras.callbacks.Callback) for item in callbacks):
        raise WillRepeat("build_callbacks must return a list of Keras callbacks.", at=trial.build_callbacks)
    for item in callbacks:
        if isinstance(item, keras.callbacks.BackupAndRestore):
            raise WillRepeat(
                "BackupAndRestore would resume from a file of its own; take it out: trials resume without it.",
                at=trial.build_callbacks,
            )
        check_callback(item)
    return list(callbacks)


def reason_to_stop(model: Any, callbacks: Sequence[Any]) -> str | None:
    """Reason for which `model.stop_training` is set. None: it is not."""
    if not getattr(model, "stop_training", False):
        return None
    for item in callbacks:
        if isinstance(item, keras.callbacks.EarlyStopping) and item.wait >= item.patience:
            return f"Keras's EarlyStopping: {item.monitor} did not improve in {item.wait} epochs"
    return "a callback set model.stop_training"


def state_of(callback: Any) -> dict[str, Any]:
    if callable(state_dict := getattr(callback, "state_dict", None)):
        return dict(state_dict())
    return {name: value for name, value in vars(callback).items() if name not in _NOT_STATE and _is_plain(value)}


def check_saved(trial: KerasTrial, callbacks: Sequence[Any], saved: Sequence[tuple[str, Any]]) -> None:
    names = [name for name, _ in saved]
    if names != (have := [type(item).__name__ for item in callbacks]):
        raise WillRepeat(
            f"the checkpoint holds the callbacks {names}, but build_callbacks returned {have}; it must return the same ones "
            "each time.",
            at=trial.build_callbacks,
        )


def restore(callback: Any, state: Mapping[str, Any]) -> None:
    if callable(load := getattr(callback, "load_state_dict", None)):
        load(state)
        return
    for name, value in state.items():
        setattr(callback, name, value)


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple, set):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)
