"""`determined.keras.callbacks`."""

from __future__ import annotations

from typing import Any

import keras
from keras.callbacks import EarlyStopping, ReduceLROnPlateau


class Callback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keras's hooks. Those that Determined added (`on_train_workload_begin`, `get_state`, ...) are refused at the trial's start,
    with what to write instead."""


class TensorBoard(keras.callbacks.Callback):  # type: ignore[misc]
    """Does nothing: the cluster records metrics, and writes no files for TensorBoard."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TensorBoard"]
