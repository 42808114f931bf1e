"""A Keras trial for several ranks: 22 records in batches of 9, so that neither batches nor shares divide."""

import os
import signal

import keras
import numpy as np

from tenuto.keras import KerasTrial

RECORDS = 22


def records(seed):
    x = np.random.default_rng(seed).random((RECORDS, 3)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


class Die(keras.callbacks.Callback):
    def __init__(self, rank):
        super().__init__()
        self.rank, self.seen = rank, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if os.environ.get("TEST_DIE") == f"{self.rank} {self.seen}":
            os.kill(os.getpid(), signal.SIGKILL)


class Ranked(KerasTrial):
    def build_model(self):
        random = self.context.get_hparam("random")
        dropout = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)] if random else []
        model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), *dropout, keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
        return model

    def build_training_data(self):
        return records(1)

    def build_validation_data(self):
        return records(2)

    def build_callbacks(self):
        return [Die(self.context.rank)]
