"""State that the user's own Keras classes keep in plain attributes goes on as it was; what does not is said. Run as a program."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

from tenuto.keras import KerasTrial
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
        self.total, self.rows = 0.0, []


def constant(value: Any) -> Any:
    return keras.ops.convert_to_tensor(np.asarray(value, "float32"))


class Gate(keras.layers.Layer):  # type: ignore[misc]
    """Each attribute takes part in what the layer computes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.bank, self.shift = 0, np.zeros(3), 0.0
        self.rows: list[float] = []
        self.byname = {"last": 0.0}
        self.recent: deque[Any] = deque(maxlen=3)
        self.rng = np.random.default_rng(8)
        self.inner = keras.layers.Dense(3)
        self._secret, self.spare = 0.5, None
        self.meter = Meter()

    def build(self, shape: Any) -> None:
        self.inner.build(shape)
        self.late, self.made, self.size = Meter(), [0.0], 0
        self.below = Below()
        self.built = True

    def remember(self) -> None:
        """What each batch changes, called by the layer itself where its code runs for each batch."""
        self.calls += 1
        self.size += 2
        self.shift += self.rng.normal()
        self.bank[self.calls % 3] += self.shift
        self.rows.append(self.shift)
        self.byname["last"] = self.shift
        self.recent.append(np.full(2, self.shift))
        self._secret *= 0.9
        self.meter.total += self.shift
        self.meter.rows.append(self.calls)
        self.late.total += 1.0
        self.made[0] += self.shift
        self.below.calls += 1

    def sum(self) -> float:
        numbers = [self.calls, self.size, self.shift, self.bank.sum(), sum(self.rows), self.byname["last"], self._secret]
        numbers += [float(np.sum(self.recent)) if self.recent else 0.0, self.meter.total, sum(self.meter.rows)]
        numbers += [self.late.total, self.made[0], self.below.calls]
        return float(np.tanh(1e-2 * sum(numbers)))

    def call(self, inputs: Any, training: bool = False) -> Any:
        output = self.inner(inputs)
        if BACKEND == "tensorflow":  # its code runs once, for the graph
            return output
        if training:
            self.remember()
        return output * (1.0 + 0.1 * self.sum())


class Drawing(Gate):
    """Draws in a validation, too."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return super().call(inputs, training) + 1e-3 * self.rng.normal()


class Below(keras.layers.Layer):  # type: ignore[misc]
    """Made when its owner is built."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0


def counting() -> Any:
    """A module of torch's, which Keras keeps in a layer, with state beside its parameters and buffers."""
    from torch import Generator, nn, rand

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.below = nn.Linear(3, 3), nn.Sequential(nn.Dropout(0.1), nn.BatchNorm1d(3))
            self.calls, self.rows = 0, []
            self.generator, self.rng = Generator().manual_seed(5), np.random.default_rng(6)
            self.below[0].seen = 0.0

        def forward(self, inputs: Any) -> Any:
            if self.training:
                self.calls += 1
                self.rows.append(float(rand(1, generator=self.generator)) + self.rng.random())
                self.below[0].seen += self.rows[-1]
            own = self.calls + sum(self.rows) + self.below[0].seen + float(self.below[1].running_mean.sum())
            return self.below(self.linear(inputs)) * (1.0 + 0.1 * float(np.tanh(1e-2 * own)))

    return Counting()


class Held(Gate):
    """As an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.module = counting()

    def call(self, inputs: Any, training: bool = False) -> Any:
        self.module.train(training)
        return self.module(super().call(inputs, training))


class Wrapped(Gate):
    """By Keras's own layer for a module."""

    def __init__(self) -> None:
        super().__init__()
        self.wrapped = keras.layers.TorchModuleWrapper(counting())

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.wrapped(super().call(inputs, training), training=training)


class Descent(keras.optimizers.SGD):  # type: ignore[misc]
    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.sizes: list[float] = []
        self.taken = 0


class Loss(keras.losses.Loss):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(keras.ops.square(y_pred - keras.ops.reshape(y_true, (-1, 1))), axis=-1)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, step: Any) -> Any:
        return 0.01

    def get_config(self) -> Any:
        return {}


class Error(keras.metrics.Mean):  # type: ignore[misc]
    def __init__(self, name: str = "error") -> None:
        super().__init__(name=name)
        self.updates = 0

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(keras.ops.abs(y_pred - keras.ops.reshape(y_true, (-1, 1))))


class Net(keras.Model):  # type: ignore[misc]
    def __init__(self, kind: type[Gate]) -> None:
        super().__init__()
        self.gates = [kind(), kind()]
        self.drop, self.out = keras.layers.Dropout(0.2), keras.layers.Dense(1)
        self.steps, self.seen = 0, []

    def call(self, inputs: Any, training: bool = False) -> Any:
        for gate in self.gates:
            inputs = gate(inputs, training=training)
        return self.out(self.drop(inputs, training=training))


class Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """Between batches it changes attributes of all parts, and the weights by what they hold."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model, optimizer = self.model, self.model.optimizer
        model.steps += 1
        model.seen.append(model.steps % 4)
        optimizer.taken += 1
        optimizer.sizes.append(float(optimizer.taken) ** 0.5)
        loss, [metric] = model._compile_loss._user_loss, model._compile_metrics._user_metrics
        loss.weight *= 0.95
        metric.updates += 1
        rate = optimizer._learning_rate
        if isinstance(rate, Schedule):
            rate.asked += 1
        if BACKEND == "tensorflow":
            for gate in model.gates:
                gate.remember()
        model.drop.rate = 0.2 + 0.01 * (model.steps % 3)
        numbers = [model.steps, sum(model.seen), optimizer.taken, sum(optimizer.sizes), loss.weight, metric.updates]
        numbers += [gate.sum() for gate in model.gates] + [getattr(rate, "asked", 0), model.drop.rate]
        kernel = model.out.kernel
        kernel.assign(np.asarray(keras.ops.convert_to_numpy(kernel)) + 1e-4 * float(sum(numbers)))


class Own(KerasTrial):
    scheduled, gate = False, Gate
    eager = False
    """True: without graphs, of which TensorFlow traces anew for each trainer, for two seconds."""

    def build_model(self) -> Any:
        model = Net(self.gate)
        optimizer = Descent(Schedule() if self.scheduled else 0.01)
        model.compile(optimizer=optimizer, loss=Loss(), metrics=[Error()], run_eagerly=self.eager)
        return model

    def build_training_data(self) -> Any:
        """Of whole batches with TensorFlow, whose step for another shape would hold the attributes of the time of its trace."""
        x = np.random.default_rng(3).random((20 if BACKEND == "tensorflow" else 18, 2)).astype("float32")
        return x, x.sum(axis=1)

    def build_validation_data(self) -> Any:
        return np.ones((4, 2), "float32"), np.ones(4, "float32")

    def build_callbacks(self) -> Any:
        return [Watch()]


class Scheduled(Own):
    scheduled = True


class Eager(Own):
    eager = True


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


def goes_on_as_one(kind: Any, *ways: tuple[int, ...]) -> None:
    expected, notes = trained(kind)
    assert notes == [], notes
    for stops in ways:
        found, notes = trained(kind, stops)
        assert notes == [], notes
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), (kind, stops)


class DrawingTrial(Own):
    gate = Drawing


class HeldTrial(Own):
    gate = Held


class WrappedTrial(Own):
    gate = Wrapped


def a_validation_leaves_generators_alone() -> None:
    """Also where it is traced, which draws from them."""
    trainer = KerasTrainer(DrawingTrial, INFO)
    trainer.train(3, lambda: False)
    generators = [gate.rng.bit_generator for gate in trainer.model.gates]
    before = [generator.state for generator in generators]
    trainer.validate()
    trainer.close()
    assert [generator.state for generator in generators] == before


def says_what_it_cannot() -> None:
    class Late(Eager):
        def build_callbacks(self) -> Any:
            class Makes(keras.callbacks.Callback):  # type: ignore[misc]
                def on_train_batch_end(_, batch: int, logs: Any = None) -> None:  # noqa: N805
                    _.model.gates[0].spare = iter([1, 2])

            return [Makes()]

    _, [sentence] = trained(Late)
    assert sentence.startswith("spare of layer 'gate"), sentence
    assert "(Gate) is a list_iterator, which a checkpoint cannot hold" in sentence, sentence
    assert f"{Path(__file__).name}:" in sentence, sentence


goes_on_as_one(Own, *WAYS)
goes_on_as_one(Scheduled, *WAYS)
if BACKEND == "torch":
    goes_on_as_one(HeldTrial, *WAYS)
    goes_on_as_one(WrappedTrial, *WAYS)
a_validation_leaves_generators_alone()
says_what_it_cannot()
print("all as it was", file=sys.stdout)
