"""A store of another package: its operator declares it, a trial writes there and goes on from it, and the gateway reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_plugins import environment
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow]
CONFIG = """
name: archived
entrypoint: python train.py
searcher: {name: single, metric: loss, smaller_is_better: true, max_length: {batches: 4}}
checkpoint_storage: {store: archive}
"""
TRAIN = """
import os

import tenuto

with tenuto.init() as run:
    steps, restored = 0, run.checkpoint.latest is not None
    if restored:
        with run.checkpoint.restore() as directory:
            steps = int((directory / "steps").read_text())
        print("goes on at step", steps)
    for operation in run.operations():
        while steps < operation.steps:
            steps += 1
            with run.checkpoint.save(steps) as directory:
                (directory / "steps").write_text(str(steps))
                (directory / "weights").write_bytes(b"w" * 3_000_000)
            if steps == 3 and not restored:
                os._exit(1)  # the first two are stored: each save waits for the one before
        run.report_validation(steps, {"loss": 1.0 / steps})
"""


def test_a_trial_goes_on_from_its_checkpoint_in_a_plugins_store(tmp_path: Path, example_plugins: Path) -> None:
    model, place = tmp_path / "model", tmp_path / "checkpoints.db"
    model.mkdir()
    (model / "train.py").write_text(TRAIN)
    (tmp_path / "config.yaml").write_text(CONFIG)
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1)
    cluster.environment |= environment(example_plugins) | {"TENUTO_WORKER_INHERITS": "PYTHONPATH"}
    with cluster:
        cluster.cli("store", "create", "archive", "--type", "sqlite", "--set", f"file={place}")
        [row] = [item for item in cluster.json("store", "ls") if item["name"] == "archive"]
        assert row == {"name": "archive", "type": "sqlite", "url": f"sqlite://{place}"}
        cluster.cli("exp", "create", tmp_path / "config.yaml", model)
        cluster.wait_for(lambda: any(event.type == "ExperimentCompleted" for event in cluster.events()))
        assert "goes on at step" in cluster.log("1", "goes on at step")
        latest = max(cluster.json("ckpt", "ls", "--experiment", "1"), key=lambda item: item["batches"])
        assert latest["batches"] == 4
        assert latest["location"].startswith("store://archive/1/1-1/")
        cluster.cli("ckpt", "verify", latest["id"])
        cluster.cli("ckpt", "download", latest["id"], "-o", tmp_path / "read")
        [steps] = list((tmp_path / "read").rglob("steps"))
        assert steps.read_text() == "4"
        assert (steps.parent / "weights").read_bytes() == b"w" * 3_000_000
        assert not list((tmp_path / "cluster/shared/checkpoints").glob("1/*"))
