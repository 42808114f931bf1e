"""A Keras trial for several ranks: 22 records in batches of 9, so that neither batches nor shares divide."""

import os
import signal
import time

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


class Slow(keras.layers.Layer):
    """Lets a rank work longer on its part of each training step."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def call(self, inputs, training=False):
        if not training:
            return inputs
        if keras.backend.backend() == "torch":
            time.sleep(self.seconds)
            return inputs
        import tensorflow as tf

        def sleep(value):
            time.sleep(self.seconds)
            return value

        slow = tf.ensure_shape(tf.numpy_function(sleep, [tf.stop_gradient(inputs)], inputs.dtype), inputs.shape)
        return inputs + 0.0 * slow


class Ranked(KerasTrial):
    def build_model(self):
        random = self.context.get_hparam("random")
        dropout = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)] if random else []
        slow = os.environ.get("TEST_SLOW", "").split()
        slows = [Slow(float(slow[1]))] if slow and int(slow[0]) == self.context.rank else []
        model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), *dropout, *slows, keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
        return model

    def build_training_data(self):
        return records(1)

    def build_validation_data(self):
        return records(2)

    def build_callbacks(self):
        return [Die(self.context.rank)]


class OwnStep(Ranked):
    """Of the torch back end: a training step of its own with two optimizers, from a torch DataLoader that draws at random."""

    def build_model(self):
        model = Pair()
        model.compile(loss="mse", optimizer=keras.optimizers.SGD(0.05), metrics=["mae"])
        return model

    def build_training_data(self):
        import torch

        return torch.utils.data.DataLoader(Noisy(), batch_size=self.context.batch_size, shuffle=True)


class Noisy:
    def __init__(self):
        self.x, self.y = records(1)

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return self.x[index] + 0.1 * np.random.rand(3).astype("float32"), self.y[index]


class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.head, self.other = keras.layers.Dense(1), keras.layers.Dense(1)
        self.second = keras.optimizers.Adam(0.02)

    def call(self, x):
        return self.head(x) + 0.0 * self.other(x)

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean((y - self.head(x)) ** 2)
        loss.backward()
        self.optimizer.apply([item.value.grad for item in self.head.trainable_weights], self.head.trainable_weights)
        other = keras.ops.mean(keras.ops.abs(y - self.other(x)))
        other.backward()
        self.second.apply([item.value.grad for item in self.other.trainable_weights], self.other.trainable_weights)
        return {"head": loss, "other": other}
