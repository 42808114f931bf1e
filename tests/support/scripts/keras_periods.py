"""What a Keras trial asks for each so many batches or epochs, and never comes in its length, is said before it trains. Run as a
program, that prints the findings as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

from tenuto.keras import KerasTrial
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras.trainer import KerasTrainer

INFO = TrialInfo(1, "1-1", 1, 77, {"global_batch_size": 4}, {})
EPOCH_BATCHES = 5


class AtEnd(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None: ...


class Gathers(KerasTrial):
    callbacks: tuple[Any, ...] = ()
    scaled = False

    def build_model(self) -> Any:
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        optimizer: Any = keras.optimizers.SGD(0.01, gradient_accumulation_steps=4)
        model.compile(optimizer=keras.optimizers.LossScaleOptimizer(optimizer) if self.scaled else optimizer, loss="mse")
        return model

    def build_training_data(self) -> Any:
        return np.ones((4 * EPOCH_BATCHES, 2), "float32"), np.ones((4 * EPOCH_BATCHES, 1), "float32")

    def build_validation_data(self) -> Any:
        return np.ones((4, 2), "float32"), np.ones((4, 1), "float32")

    def build_callbacks(self) -> Any:
        return list(self.callbacks)


class Scaled(Gathers):
    scaled = True


class Calls(Gathers):
    callbacks = (
        AtEnd(),
        keras.callbacks.Callback(),
        keras.callbacks.EarlyStopping(monitor="loss"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None),
    )


def said(kind: type[Gathers], full_batches: int) -> str:
    return output(lambda: KerasTrainer(kind, INFO).check_length(full_batches))


def output(call: Any) -> str:
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        try:
            call()
        except UserError as error:
            print(f"{type(error).__name__}: {error}", file=heard)
    return heard.getvalue()


def validated(batches: int) -> str:
    trainer = KerasTrainer(Gathers, INFO)
    trainer.train(batches, lambda: False)
    return output(trainer.validate)


print(
    json.dumps(
        {
            "refused": said(Gathers, 3),
            "inner refused": said(Scaled, 3),
            "rest": said(Gathers, 6),
            "whole": said(Calls, 8),
            "short": said(Calls, EPOCH_BATCHES - 1),
            "early": validated(3),
            "in time": validated(4),
        }
    ),
    file=sys.stdout,
)
