"""Keras trials on torch: killed or preempted and resumed, they end with the bits of one that was left alone; from every kind of
data. And what users are told about mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, begins_with_weights
from tests.support.checkpoint_reports import stored_files
from tests.support.keras_bench import (
    PROGRAM_SECONDS_MAX,
    bench,
    check_killed_or_preempted,
    last_line,
    start,
)
from tests.support.seeds import SEEDS

real_parts.package("keras")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
def test_every_kind_of_data_goes_on_where_it_was(tmp_path: Path) -> None:
    assert json.loads(last_line(tmp_path, "torch", "keras_data.py", "arrays", "loader", "pydataset")) == []


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
@pytest.mark.parametrize("name", ["keras_attributes.py", "keras_own_state.py"])
def test_what_a_trial_keeps_itself_goes_on_or_is_said(tmp_path: Path, name: str) -> None:
    assert last_line(tmp_path, "torch", name) == "all as it was"


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
def test_data_with_generators_of_its_own_goes_on_from_any_position(tmp_path: Path) -> None:
    assert last_line(tmp_path, "torch", "keras_own_generators.py") == "all as it was"


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_or_preempted_it_ends_with_the_same_bits(tmp_path: Path, seed: int) -> None:
    check_killed_or_preempted(tmp_path, "torch", "arrays", seed)


def test_the_example(tmp_path: Path) -> None:
    with bench(tmp_path / "t", "torch", "", entrypoint="model_def:Digits", min_validation_period=None) as trial:
        trial.context_directory = EXAMPLES / "keras"
        trial.hyperparameters = {"learning_rate": 0.01, "channels": 8, "dropout": 0.1, "global_batch_size": 32}
        agents: list[AgentStandIn] = []
        run = start(trial, agents, None)
        assert run.wait() == 0, run.output()
        assert agents[0].validations()[-1].metrics["val_accuracy"] > 0.2


def test_another_trials_weights_and_its_whole_state_with_another_learning_rate(tmp_path: Path) -> None:
    """`searcher.source_checkpoint`, and a copy in population-based training."""
    with bench(tmp_path / "t", "torch", "arrays", min_validation_period=None) as trial:
        agents: list[AgentStandIn] = []
        assert start(trial, agents, None).wait() == 0
        source = agents[0].checkpoints()[0]  # at batch 2, before a callback changes the learning rate
        weights = safetensors.numpy.load_file(stored_files(source)["model.safetensors"])
        trial.hyperparameters = {**trial.hyperparameters, "learning_rate": 0.0}  # whatever it trains, its weights stay
        for whole in (False, True):
            agent = trial.agent(4, source)
            if not whole:
                agent.assignment = begins_with_weights(agent.assignment, source)
            agent.react = lambda report: (
                pb.Directive(action=pb.Directive.STOP, target_length=4) if report.kind == "validation" else None
            )
            run = trial.start(agent, **trial.config.environment.variables)
            assert run.wait() == 0, run.output()
            assert ("begins with the weights" in run.output()) is not whole
            assert ("takes this trial's own learning rate: 0" in run.output()) is whole
            checkpoints = agent.checkpoints()
            assert [item.batches for item in checkpoints] == ([4] if whole else [2, 4])
            found = safetensors.numpy.load_file(stored_files(checkpoints[-1])["model.safetensors"])
            trained = [name for name in weights if "moving" not in name]
            assert len(trained) > 4
            for name in trained:
                np.testing.assert_array_equal(found[name], weights[name])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("uncompiled", "model_def.py:7: build_model returned a model that is not compiled"),
        ("generator", "model_def.py:12: build_training_data returned generator, in which no place can be found again"),
        ("shapes", "model_def.py:19: "),
        (
            "hook",
            "model_def.py:21: Noting.on_train_workload_end would never be called: write on_epoch_end(self, epoch, logs) instead.",
        ),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path: Path, change: str, words: str) -> None:
    context = tmp_path / "context"
    context.mkdir()
    code = MISTAKES.replace("model.compile(loss='mse')", "pass") if change == "uncompiled" else MISTAKES
    code = code.replace("return X, X[:, :1]", "return (X for _ in range(3))") if change == "generator" else code
    code = code.replace("self.dense(x)", "self.dense(x) @ keras.ops.ones((3, 3))") if change == "shapes" else code
    if change == "hook":
        code += "class Noting(keras.callbacks.Callback):\n    def on_train_workload_end(self, batches, logs): pass\n"
        code += "Mistaken.build_callbacks = lambda self: [Noting()]\n"
    (context / "model_def.py").write_text(code)
    with bench(tmp_path / "t", "torch", "arrays", entrypoint="model_def:Mistaken") as trial:
        trial.context_directory = context
        agents: list[AgentStandIn] = []
        run = start(trial, agents, None)
        repeats = change in ("uncompiled", "hook")  # whatever the data are
        assert run.wait() == (EXIT_CODE_WILL_REPEAT if repeats else 1), run.output()
        assert agents[0].error_file.read_text().startswith(words)


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
def test_methods_and_callbacks_are_checked_at_the_start(tmp_path: Path) -> None:
    found = json.loads(last_line(tmp_path, "torch", "keras_checks.py"))
    assert [found[case] for case in ("usual", "library", "whole")] == [None, None, []]
    assert found["elsewhere"].endswith(
        "on_train_workload_end would never be called: write on_epoch_end(self, epoch, logs) instead."
    )
    assert found["state"].endswith("get_state would never be called: write state_dict(self) instead.")
    assert found["misspelt"].endswith("on_epochs_end would never be called: write on_epoch_end instead.")
    assert "on_epoch_end(epoch) cannot be called as on_epoch_end(epoch, logs)" in found["arguments"]
    assert "build_model(context) cannot be called as build_model()" in found["method"]
    assert found["foreign"] == "MyTrial.keras_callbacks would never be called: write build_callbacks(self) instead."
    assert found["doubt"] == ["MyTrial.build_callback is never called; is build_callbacks meant?"]
    assert found["one slot"] == 8
    for case in ("two slots", "elastic"):
        assert "give the data batches of context.batch_size instead of get_per_slot_batch_size()" in found[case]


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
def test_periods_that_never_come_are_told_before_it_trains(tmp_path: Path) -> None:
    found = json.loads(last_line(tmp_path, "torch", "keras_periods.py"))
    never = "the gradients of 4 batches are gathered for a step, but the trial's full length is 3 batches, so no optimizer"
    for case in ("refused", "inner refused"):
        assert f"WillRepeat: gradient_accumulation_steps: {never} would ever step" in found[case]
    assert "the gradients of the last 2 batches are used by no step" in found["rest"]
    assert found["whole"] == found["in time"] == ""
    called = ("AtEnd", "EarlyStopping", "LambdaCallback")
    told = "on_epoch_end is never called: the trial's full length is 4 batches, and an epoch has 5"
    assert found["short"].splitlines() == [f"tenuto: {name}.{told}" for name in called]
    assert "the validation after 3 batches measures the model as it was made" in found["early"]


MISTAKES = """import keras
import numpy as np
from tenuto.keras import KerasTrial
X = np.ones((8, 2), "float32")
class Mistaken(KerasTrial):
    def __init__(self, context): super().__init__(context)
    def build_model(self):
        model = Model()
        model.compile(loss='mse')
        return model
    def build_validation_data(self): return X, X[:, :1]
    def build_training_data(self):
        return X, X[:, :1]
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)
"""
