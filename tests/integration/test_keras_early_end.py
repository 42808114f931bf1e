"""Keras trials that end by themselves: by Keras's own callbacks, and by the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.schemas.reports import CheckpointReport, TrainingEndedReport, ValidationReport
from tests.support import real_parts
from tests.support.agent_stand_in import WorkerBench
from tests.support.reactions import ends_of, stop_ended
from tests.support.warm_starts import KERAS

real_parts.package("keras")
EPOCH_BATCHES = 5
MODEL = """
import keras
import numpy as np

from tenuto.keras import KerasTrial


class Asks(keras.callbacks.Callback):
    def __init__(self, context, how):
        super().__init__()
        self.context, self.how = context, how

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 and self.how == "context":
            self.context.set_stop_requested(True, reason="enough")
        if batch == 3 and self.how == "model":
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.how == "epoch":
            self.model.stop_training = True


class Stops(KerasTrial):
    def __init__(self, context):
        self.context = context

    def build_model(self):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        return model

    def build_training_data(self):
        return np.ones((40, 3), "float32"), np.ones((40, 1), "float32")

    def build_validation_data(self):
        return np.ones((8, 3), "float32"), np.ones((8, 1), "float32")

    def build_callbacks(self):
        how = self.context.get_hparam("how")
        if how == "EarlyStopping":
            return [keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, min_delta=100.0)]
        return [Asks(self.context, how)]
"""
CASES = [
    ("EarlyStopping", 3 * EPOCH_BATCHES, "Keras's EarlyStopping: val_loss did not improve in 2 epochs"),
    ("model", 4, "a callback set model.stop_training"),
    ("context", 3, "enough"),
    ("epoch", EPOCH_BATCHES, "a callback set model.stop_training"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("how", "batches", "reason"), CASES, ids=lambda value: str(value)[:15])
def test_a_trial_ends_where_its_callback_stops_it(tmp_path: Path, how: str, batches: int, reason: str) -> None:
    """On torch; the other back end is in test_keras_tensorflow.py, with what else needs it."""
    check_end(tmp_path, "torch", how, batches, reason)


def check_end(tmp_path: Path, backend: str, how: str, batches: int, reason: str) -> None:
    context = tmp_path / "model"
    context.mkdir()
    (context / "model_def.py").write_text(MODEL)
    config = {
        "name": "stops",
        "entrypoint": "model_def:Stops",
        "searcher": {"name": "single", "metric": "val_loss", "max_length": {"epochs": 20}},
        # Without validations the end of an epoch is told to callbacks only before the next one.
        "min_validation_period": {"epochs": 100 if how == "epoch" else 1},
        "environment": {"variables": {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}},
    }
    values = {"how": how, "global_batch_size": 8}
    with WorkerBench(tmp_path, context, config, values, modules=KERAS[backend]) as bench:
        agent = bench.agent(20)
        agent.react = stop_ended
        run = bench.start(agent, **bench.config.environment.variables)
        assert run.wait() == 0, run.output()
        saved, validated, ended = [item for item in agent.reports if item.kind != "progress"][-3:]
        assert ends_of(agent.reports) == [(batches, batches // EPOCH_BATCHES, reason)]
        assert isinstance(ended, TrainingEndedReport)
        # A validation before the end of the training takes its checkpoint along in a report of its own.
        assert {type(saved), type(validated)} == {CheckpointReport, ValidationReport}
        assert saved.batches == validated.batches == batches
        assert agent.endings == ["finished"]
