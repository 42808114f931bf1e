"""A framework that another package brings: its trials are trained, resumed and started warm like those of Tenuto's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.support.example_plugins import environment
from tests.support.live_cluster import LiveCluster, tenuto

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = """
import sys

print("torch" in sys.modules, "tenuto.workers.core_api.script" in sys.modules, flush=True)

import numpy as np
from tenuto_example_plugins.framework import ArrayTrial

TRUE = np.array([2.0, -1.0, 0.5])


class Line(ArrayTrial):
    def begin(self, generator):
        return {"weights": generator.normal(size=3)}

    def train_batch(self, arrays, generator):
        inputs = generator.normal(size=(8, 3))
        errors = inputs @ (arrays["weights"] - TRUE)
        arrays["weights"] -= self.hyperparameters["rate"] * inputs.T @ errors / 8
        return {"loss": float(np.mean(errors**2))}

    def validate(self, arrays):
        return {"distance": float(np.linalg.norm(arrays["weights"] - TRUE))}
"""
CONFIG = {
    "name": "arrays",
    "entrypoint": "model_def:Line",
    "hyperparameters": {"rate": 0.1},
    "searcher": {"name": "single", "metric": "distance", "max_length": {"batches": 60}},
    "min_checkpoint_period": {"batches": 20},
    "min_validation_period": {"batches": 20},
}


@pytest.fixture
def experiment(tmp_path: Path) -> tuple[Path, Path]:
    """Configuration and model directory."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model_def.py").write_text(MODEL)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    return config, model


def test_a_cluster_trains_an_experiment_of_it(example_plugins: Path, experiment: tuple[Path, Path], tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster")
    # Workers get no PYTHONPATH unless an operator says so; what is installed as usual needs none.
    cluster.environment |= environment(example_plugins) | {"TENUTO_WORKER_INHERITS": "PYTHONPATH"}
    with cluster:
        number = str(cluster.json("exp", "create", *experiment)["id"])
        cluster.cli("exp", "wait", number)
        view = cluster.json("exp", "describe", number)
        [trial] = view["trial_list"]
        assert (view["state"], trial["state"], trial["batches"]) == ("completed", "completed", 60)
        assert trial["best_metric"] < 0.1
        log = cluster.cli("trial", "logs", trial["id"]).stdout
        assert "False True" in log, "it began in a process that had imported Tenuto's modules ahead, and not torch"
        assert cluster.json("exp", "replay", number, "--verify")["ok"]


def test_its_trials_are_resumed_exactly(example_plugins: Path, experiment: tuple[Path, Path], tmp_path: Path) -> None:
    variables = {**os.environ, **environment(example_plugins), "TENUTO_DATA_DIRECTORY": str(tmp_path / "data")}
    done = tenuto(("exp", "create", "--local", "--test", *experiment), variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it has the weights of the one that went on, bit for bit" in done.stdout + done.stderr, done.stdout + done.stderr
