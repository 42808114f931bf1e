"""Keras trials: killed or preempted and resumed, they end with the bits of one that was left alone; on both back ends, from every
kind of data. And what users are told about mistakes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench, begins_with_weights
from tests.support.checkpoint_reports import stored_files
from tests.support.seeds import SEEDS
from tests.support.warm_starts import KERAS

real_parts.package("keras")
SUPPORT = Path(__file__).parents[1] / "support"
CONTEXT = SUPPORT / "trials" / "keras_everything"
TARGET_BATCHES = 14
KILL_AFTER_US_MAX = 30_000
SCRIPT_SECONDS_MAX = 1_500.0
"""Half a minute of TensorFlow's computing takes several where others compute, too; a program that hangs takes for ever."""
EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = {
    "tensorflow": ["dataset", "drawing", "stateless", "endless", "pydataset", "arrays"],
    "torch": ["arrays", "loader", "pydataset"],
}


@pytest.mark.timeout(SCRIPT_SECONDS_MAX + 60)
@pytest.mark.parametrize("backend", sorted(DATA))
def test_every_kind_of_data_goes_on_where_it_was(backend: str) -> None:
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "0"}
    script = SUPPORT / "scripts" / "keras_data.py"
    done = subprocess.run(
        [sys.executable, str(script), *DATA[backend]], env=environment, capture_output=True, text=True, timeout=SCRIPT_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.timeout(SCRIPT_SECONDS_MAX + 60)
@pytest.mark.parametrize("name", ["keras_attributes.py", "keras_own_state.py"])
@pytest.mark.parametrize("backend", sorted(DATA))
def test_what_a_trial_keeps_itself_goes_on_or_is_said(backend: str, name: str) -> None:
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    script = SUPPORT / "scripts" / name
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=SCRIPT_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all as it was"


def bench(directory: Path, backend: str, data: str, **changes: Any) -> WorkerBench:
    directory.mkdir()
    config = {
        "name": "keras",
        "entrypoint": "model_def:Everything",
        "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": TARGET_BATCHES}},
        "min_checkpoint_period": {"batches": 2},
        "min_validation_period": {"epochs": 1},
        "log_period": {"batches": 1},
        "environment": {"variables": {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}},
        "reproducibility": "exact",
        **changes,
    }
    hyperparameters = {"learning_rate": 0.01, "data": data}
    return WorkerBench(directory, CONTEXT, config, hyperparameters, modules=KERAS[backend])


def start(trial: WorkerBench, agents: list[AgentStandIn], checkpoint: CheckpointReport | None, **environment: str) -> Any:
    agent = trial.agent(TARGET_BATCHES, checkpoint)
    agents.append(agent)

    def stop(report: TrackerReport) -> pb.Directive | None:
        if report.kind == "validation" and report.batches == TARGET_BATCHES:
            return pb.Directive(action=pb.Directive.STOP, target_length=TARGET_BATCHES)
        return None

    agent.react = stop
    return trial.start(agent, **trial.config.environment.variables, **environment)


def last_of(agents: list[AgentStandIn]) -> CheckpointReport | None:
    """None: the first one was killed before its first checkpoint was stored."""
    return ([report for agent in agents for report in agent.checkpoints()] or [None])[-1]


def result(agents: list[AgentStandIn]) -> dict[str, Any]:
    """All that the trial came to, and every metric that it reported, by position."""
    checkpoint = last_of(agents)
    assert checkpoint is not None
    assert checkpoint.batches == TARGET_BATCHES
    files = stored_files(checkpoint)
    points = {point.batches: point.metrics for agent in agents for report in agent.metrics for point in report.points}
    return {
        "weights": files["model.safetensors"].read_bytes(),
        "state": files["state.safetensors"].read_bytes(),
        "validations": {report.batches: report.metrics for agent in agents for report in agent.validations()},
        "training metrics": dict(sorted(points.items())),
        "exactness": files["exactness.json"].read_text(),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("backend", "data"), [("tensorflow", "dataset"), ("torch", "arrays")])
def test_killed_or_preempted_it_ends_with_the_same_bits(tmp_path: Path, backend: str, data: str, seed: int) -> None:
    instants = random.Random(seed)
    with bench(tmp_path / "whole", backend, data) as trial:
        agents: list[AgentStandIn] = []
        run = start(trial, agents, None)
        assert run.wait() == 0, run.output()
        expected = result(agents)
    with bench(tmp_path / "killed", backend, data) as trial:
        agents = []
        kill_at = f"{instants.randrange(4, 8)}:{instants.randrange(KILL_AFTER_US_MAX)}"
        run = start(trial, agents, None, TEST_KILL_AT=kill_at)
        assert run.wait() == -9, run.output()
        if backend == "torch":  # each process of the other one traces for seconds
            run = start(trial, agents, last_of(agents), TEST_PREEMPT_AT="11")
            assert run.wait() == 80, run.output()
        run = start(trial, agents, last_of(agents))
        assert run.wait() == 0, run.output()
        assert result(agents) == expected


def test_a_tensorflow_loop_through_the_core_api_goes_on_where_it_was(tmp_path: Path) -> None:
    """The example: its tf.train.Checkpoint holds model, optimizer and the place in the data."""
    config = {
        "name": "loop",
        "entrypoint": "train.py",
        "searcher": {"name": "single", "metric": "accuracy", "max_length": {"batches": TARGET_BATCHES}},
        "log_period": {"batches": 1},
        "environment": {"variables": {"TF_CPP_MIN_LOG_LEVEL": "3"}},
    }
    losses = []
    for stops in ([TARGET_BATCHES], [6, TARGET_BATCHES]):
        directory = tmp_path / str(len(stops))
        directory.mkdir()
        with WorkerBench(
            directory,
            EXAMPLES / "tensorflow_loop",
            config,
            {"learning_rate": 0.01, "batch_size": 20},
            modules=KERAS["tensorflow"],
        ) as trial:
            agents: list[AgentStandIn] = []
            for stop in stops:
                agent = trial.agent(stop, agents[-1].checkpoints()[-1] if agents else None)
                agents.append(agent)
                agent.react = lambda report, stop=stop: (  # type: ignore[misc]
                    pb.Directive(action=pb.Directive.STOP, target_length=stop) if report.kind == "validation" else None
                )
                run = trial.start(agent, **trial.config.environment.variables)
                assert run.wait() == 0, run.output()
            points = {point.batches: point.metrics for item in agents for report in item.metrics for point in report.points}
            losses.append((points, agents[-1].validations()[-1].metrics))
    assert len(losses[0][0]) == TARGET_BATCHES
    assert losses[0] == losses[1]


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


@pytest.mark.timeout(SCRIPT_SECONDS_MAX + 60)
def test_methods_and_callbacks_are_checked_at_the_start() -> None:
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    script = SUPPORT / "scripts" / "keras_checks.py"
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=SCRIPT_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
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
