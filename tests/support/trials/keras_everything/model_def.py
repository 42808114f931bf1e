"""A Keras trial in which everything that a resumed one could get wrong is at work: shuffling, augmentation in the data and in the
model, dropout, batch normalisation, callbacks that change the learning rate, a short last batch, layers without a shape."""

import os
import random
import signal
import sys
import threading

import keras
import numpy as np

from tenuto.keras import KerasTrial

RECORDS = 44
SIDE = 6
RATES = random.Random(5)
HISTORY = {"losses": []}


def records(seed):
    generator = np.random.default_rng(seed)
    x = generator.random((RECORDS, SIDE, SIDE, 1)).astype("float32")
    return x, (x.mean(axis=(1, 2, 3)) > 0.5).astype("int32")


class Jittered(keras.utils.PyDataset):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.x, self.y = records(1)
        self.order = np.arange(RECORDS)

    def __len__(self):
        return -(-RECORDS // 8)

    def __getitem__(self, index):
        chosen = self.order[index * 8 : index * 8 + 8]
        return self.x[chosen] + 0.01 * np.random.rand() + 0.01 * random.random(), self.y[chosen]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class Count(keras.callbacks.Callback):
    """Changes the training by what it, its class and its module remember."""

    epochs = 0

    def __init__(self):
        super().__init__()
        self.seen = {"batches": 0, "epochs": []}

    def on_train_batch_end(self, batch, logs=None):
        self.seen["batches"] += 1
        kill_at(self.seen["batches"])

    def on_epoch_end(self, epoch, logs=None):
        self.seen["epochs"].append((epoch, logs["loss"], logs.get("val_loss")))
        HISTORY["losses"].append(logs["loss"])
        Count.epochs += 1
        factor = (0.8 + 0.1 * random.random() + 0.1 * RATES.random()) * (1 - 0.01 * Count.epochs) * 0.99 ** HISTORY["losses"][0]
        rate = self.model.optimizer.learning_rate
        rate.assign(float(keras.ops.convert_to_numpy(rate)) * factor)


class Everything(KerasTrial):
    def build_model(self):
        model = keras.Sequential(
            [
                keras.layers.RandomFlip("horizontal"),
                keras.layers.GaussianNoise(0.1),
                keras.layers.Flatten(),
                keras.layers.Dense(4, activation="relu"),
                *wrapped(),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(2),
            ]
        )  # no shape is given, so its variables wait for the first batch
        model.compile(
            optimizer=keras.optimizers.AdamW(self.context.get_hparam("learning_rate")),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def build_training_data(self):
        return training_data(self.context.get_hparam("data"))

    def build_validation_data(self):
        return records(2)

    def build_callbacks(self):
        return [Count(), keras.callbacks.EarlyStopping(monitor="val_loss", patience=100)]


def wrapped():
    """A torch module, whose statistics are none of Keras's variables."""
    if keras.backend.backend() != "torch":
        return []
    import torch

    return [keras.layers.TorchModuleWrapper(torch.nn.BatchNorm1d(4))]


def training_data(kind):
    if kind == "arrays":
        return records(1)
    if kind == "pydataset":
        return Jittered()
    if kind == "loader":
        return loader()
    return dataset(records(1), kind)


def dataset(arrays, kind):
    import tensorflow as tf

    made = tf.data.Dataset.from_tensor_slices(arrays).shuffle(20)
    if kind == "drawing":  # by an operation whose state nobody can save
        made = made.map(lambda x, y: (x + 0.1 * tf.random.uniform(tf.shape(x)), y), num_parallel_calls=2)
    elif kind == "stateless":
        seeds = tf.data.Dataset.random(rerandomize_each_iteration=True)
        made = tf.data.Dataset.zip(made, seeds)
        made = made.map(lambda xy, s: (xy[0] + tf.random.stateless_uniform((SIDE, SIDE, 1), (s, s)), xy[1]), num_parallel_calls=2)
    elif kind == "endless":
        made = made.repeat()
    return made.batch(8).prefetch(2)


def loader():
    import torch

    x, y = records(1)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return torch.utils.data.DataLoader(pairs, batch_size=8, shuffle=True)


def kill_at(batches):
    """TEST_KILL_AT=batches:microseconds: kills this process so long after that batch of the trial."""
    at, _, microseconds = os.environ.get("TEST_KILL_AT", "").partition(":")
    if at == str(batches):
        threading.Timer(int(microseconds) / 1e6, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    if os.environ.get("TEST_PREEMPT_AT") == str(batches):
        os.kill(os.getpid(), signal.SIGTERM)
    assert "tensorflow" not in sys.modules or keras.backend.backend() == "tensorflow"  # it would cost seconds, and much memory
