"""State that a KerasTrial keeps itself goes on as it was, whatever it is; what does not is said. Run as a program."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import pytest

from tenuto.keras import KerasTrial
from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras.trainer import KerasTrainer

BACKEND = keras.backend.backend()
INFO = TrialInfo(1, "1-1", 1, 77, {"global_batch_size": 4}, {})
END = 14
"""Batches, of 5 in an epoch."""
WAYS = ((3, 5, 11),) if BACKEND == "tensorflow" else ((3,), (5,), (2, 7, 11))
"""Batches at which a training is stopped: within an epoch, at its end, and several times. Whatever one of the stops loses the
next ones do not bring back, so TensorFlow, which traces for seconds in each process, makes them in one training."""


class Meter:
    def __init__(self) -> None:
        self.total, self.rng = 0.0, random.Random(9)


class Shift(keras.callbacks.Callback):  # type: ignore[misc]
    """Changes the weights by all that it and the trial keep."""

    def __init__(self, trial: Any) -> None:
        super().__init__()
        self.trial, self.numpy, self.history_of = trial, np.random.default_rng(4), []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        trial = self.trial
        trial.meter.total += trial.meter.rng.random()
        trial.noise += trial.rng.normal(size=3)
        trial.variable.assign(np.asarray(keras.ops.convert_to_numpy(trial.variable)) + trial.python.random())
        trial.mean.update_state(trial.meter.total)
        self.history_of.append(float(self.numpy.random()))
        shift = trial.noise.sum() + trial.meter.total + sum(self.history_of)
        shift += float(keras.ops.convert_to_numpy(trial.mean.result())) + float(keras.ops.convert_to_numpy(trial.variable).sum())
        if BACKEND == "tensorflow":
            trial.tensor = trial.tensor + trial.drawing.uniform(())
            shift += float(trial.tensor)
        kernel = self.model.layers[0].kernel
        kernel.assign(np.asarray(keras.ops.convert_to_numpy(kernel)) + 1e-3 * shift)


def records() -> Any:
    return np.random.default_rng(3).random((18, 2)).astype("float32")


class Kept(KerasTrial):
    eager = False
    """True: without graphs, of which TensorFlow traces anew for each trainer, for two seconds."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.python, self.rng, self.meter = random.Random(1), np.random.default_rng(2), Meter()
        self.noise = np.zeros(3)
        self.variable = keras.Variable(np.zeros(2, "float32"))
        self.mean = keras.metrics.Mean()
        self.of_data, self.of_map = np.random.default_rng(5), None
        if BACKEND == "tensorflow":
            import tensorflow as tf

            self.tensor, self.drawing = tf.zeros(()), tf.random.Generator.from_seed(3)
            self.of_map = tf.random.Generator.from_seed(4)

    def build_model(self) -> Any:
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", run_eagerly=self.eager)
        return model

    def build_training_data(self) -> Any:
        x = records()
        if BACKEND != "tensorflow":
            return x, x.sum(axis=1)
        import tensorflow as tf

        def drawn() -> Any:
            for row in x:
                yield row + 0.1 * self.of_data.random(2).astype("float32"), row.sum()

        kinds = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((), tf.float32))
        made = tf.data.Dataset.from_generator(drawn, output_signature=kinds)
        self.source = made
        made = made.map(lambda x, y: (x + 0.1 * self.of_map.uniform((2,)), y))  # type: ignore[attr-defined]
        return made.batch(4).prefetch(2)

    batches_per_epoch = 5

    def build_validation_data(self) -> Any:
        return np.ones((4, 2), "float32"), np.ones(4, "float32")

    def build_callbacks(self) -> Any:
        return [Shift(self)]


def trained(kind: Any, stops: tuple[int, ...] = ()) -> tuple[Any, list[str]]:
    """Weights at the end, and what was noted as not exact."""
    trainer = KerasTrainer(kind, INFO)
    for stop in stops:
        trainer.train(stop, lambda: False)
        with tempfile.TemporaryDirectory() as directory:
            trainer.save(Path(directory))
            trainer.close()
            trainer = KerasTrainer(kind, INFO)
            trainer.load(Path(directory))
    trainer.train(END, lambda: False)
    trainer.snapshot()
    trainer.close()
    weights = [np.asarray(keras.ops.convert_to_numpy(value)) for value in trainer.model.get_weights()]
    return weights, list(trainer._backend.breaks)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def goes_on_as_one(kind: Any, *ways: tuple[int, ...]) -> None:
    expected, notes = trained(kind)
    assert notes == [], notes
    for stops in ways:
        found, notes = trained(kind, stops)
        assert notes == [], notes
        assert same(found, expected), (kind, stops)


class Eager(Kept):
    eager = True


def says_what_it_cannot() -> None:
    class Late(Eager):
        def build_callbacks(self) -> Any:
            class Makes(keras.callbacks.Callback):  # type: ignore[misc]
                def on_train_batch_end(_, batch: int, logs: Any = None) -> None:  # noqa: N805
                    self.counter = iter([1, 2])

            return [Makes()]

    class Draws(Eager):
        numbers = iter(range(100))

        def build_callbacks(self) -> Any:
            class Takes(keras.callbacks.Callback):  # type: ignore[misc]
                def on_train_batch_end(_, batch: int, logs: Any = None) -> None:  # noqa: N805
                    next(Draws.numbers)

            return [Takes()]

    _, [sentence] = trained(Late)
    assert sentence.startswith("self.counter is a list_iterator, which a checkpoint cannot hold"), sentence
    _, [sentence] = trained(Draws)
    assert "numbers is a range_iterator, which a checkpoint cannot hold" in sentence, sentence


def says_whose_generators_a_pipeline_draws_from() -> None:
    import tensorflow as tf

    class Shared(Eager):
        def build_training_data(self) -> Any:
            def moved(row: Any) -> Any:
                return row + np.random.normal(scale=0.1, size=2).astype("float32")

            rows = tf.data.Dataset.from_tensor_slices(records())
            made = rows.map(lambda row: tf.ensure_shape(tf.numpy_function(moved, [row], tf.float32), (2,)))
            return made.map(lambda row: (row, tf.reduce_sum(row))).batch(4).prefetch(2)

    _, [sentence] = trained(Shared)
    assert "functions of the tf.data pipeline of build_training_data" in sentence, sentence
    assert "NumPy's global generator (np.random), in threads" in sentence, sentence


class Freeing(keras.callbacks.Callback):  # type: ignore[misc]
    """Gradual unfreezing: trainable flags, and another compile."""

    def __init__(self, trial: Any) -> None:
        super().__init__()
        self.trial = trial

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.trial.seen += 1
        if self.trial.seen == 4:
            self.trial.free(self.model)


class Frozen(Kept):
    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.seen = 0

    def build_training_data(self) -> Any:
        x = records()
        return x, x.sum(axis=1)

    def build_model(self) -> Any:
        model = super().build_model()
        model.layers[0].trainable = False
        return model

    def free(self, model: Any) -> None:
        model.layers[0].trainable = True
        model.compile(optimizer=keras.optimizers.Adam(0.005), loss="mse", run_eagerly=self.eager)

    def build_callbacks(self) -> Any:
        return [Freeing(self)]


class Rebuilt(Frozen):
    def state_dict(self) -> Any:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.seen = state["seen"]

    def rebuild(self, model: Any, state: Any) -> None:
        if state["seen"] >= 4:
            self.free(model)


class EagerFrozen(Frozen):
    eager = True


def makes_changes_of_the_structure_again() -> None:
    """Stopped before such a change, right after it, and when it was long made."""
    goes_on_as_one(Rebuilt, *(((3, 4, 9),) if BACKEND == "tensorflow" else ((3,), (4,), (6, 9))))
    _, [sentence] = trained(EagerFrozen)
    assert sentence.startswith("the structure of the model changed since build_model (other: "), sentence
    assert "rebuild(self, model, state)" in sentence
    with pytest.raises(WillRepeat):
        trained(EagerFrozen, (6,))


goes_on_as_one(Kept, *WAYS)
says_what_it_cannot()
if BACKEND == "tensorflow":
    says_whose_generators_a_pipeline_draws_from()
makes_changes_of_the_structure_again()
print("all as it was", file=sys.stdout)
