"""`determined.keras.callbacks`."""

from __future__ import annotations

from typing import Any

import keras
from keras.callbacks import ReduceLROnPlateau

from tenuto.workers.harness.errors import UserError


class Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keras's hooks. Those that Determined added (`on_train_workload_begin`, `get_state`, ...) are refused at the trial's start,
    with what to write instead."""


class TensorBoard(keras.callbacks.Callback):  # type: ignore[misc]
    """Does nothing: the cluster records metrics, and writes no files for TensorBoard."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class EarlyStopping(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, *_: Any, **__: Any) -> None:
        raise UserError("EarlyStopping: the search decides when a trial ends; choose one that stops early, such as asha.")


__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TensorBoard"]
