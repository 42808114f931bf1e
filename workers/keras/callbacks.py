"""Keras callbacks, and what of them is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tenuto.workers.harness.errors import UserError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.ndarray, np.generic)
_NOT_STATE = frozenset({"model", "_model", "params", "validation_data"})


def checked(trial: Any) -> list[Any]:
    """Raises UserError for what is no Keras callback."""
    callbacks = trial.build_callbacks()
    if not isinstance(callbacks, Sequence) or not all(isinstance(item, keras.callbacks.Callback) for item in callbacks):
        raise UserError("build_callbacks must return a list of Keras callbacks.", at=trial.build_callbacks)
    for item in callbacks:
        if isinstance(item, keras.callbacks.BackupAndRestore):
            raise UserError(
                "BackupAndRestore would resume from a file of its own; take it out: trials resume without it.",
                at=trial.build_callbacks,
            )
    return list(callbacks)


def state_of(callback: Any) -> dict[str, Any]:
    if callable(state_dict := getattr(callback, "state_dict", None)):
        return dict(state_dict())
    return {name: value for name, value in vars(callback).items() if name not in _NOT_STATE and _is_plain(value)}


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
