"""Scripts in a real cluster: a search over the example, and a run without a cluster that is brought in afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.schemas.envelope import Event
from tests.support.live_cluster import LiveCluster

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "core_api"
SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "summing" / "train.py"
CONFIG = """\
name: summing by hand
entrypoint: train.py
hyperparameters: {factor: 2, net: {sizes: [3, 4]}}
searcher: {name: asha, metric: total, max_length: {epochs: 3}, max_trials: 4, smaller_is_better: false}
min_validation_period: {epochs: 1}
checkpoint_policy: all
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-core-api-") as directory:
        cluster = LiveCluster(Path(directory))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def test_a_search_over_a_script(cluster: LiveCluster) -> None:
    experiment = cluster.json("exp", "create", EXAMPLE / "config.yaml", EXAMPLE)["id"]
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert (view["state"], sum(view["trials"].values())) == ("completed", 8)
    assert view["best_metric"] > 0.9
    assert view["best_checkpoint"]
    cluster.cli("exp", "replay", str(experiment), "--verify")


def test_a_script_that_ends_too_early_is_told_so(cluster: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tenuto\nrun = tenuto.init()\nrun.report_training(3, {'loss': 1})\n")
    (tmp_path / "config.yaml").write_text(
        "name: early\nentrypoint: train.py\nmax_restarts: 0\nsearcher: {name: single, metric: loss, max_length: {batches: 10}}\n"
    )
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", tmp_path)["id"]
    done = cluster.cli("exp", "wait", str(experiment), check=False)
    assert done.returncode == 2
    assert "train.py ended at step 3 of 10, without a validation: the search waits for 'loss'." in " ".join(done.stderr.split())


def test_a_run_without_a_cluster_is_brought_in(cluster: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, env=clean, check=True)
    record = tmp_path / "tenuto-runs" / "summing-by-hand-1"

    experiment = cluster.json("run", "import", record)["id"]
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert (view["state"], view["name"], view["best_metric"]) == ("completed", "summing by hand", 870.0)
    (trial,) = view["trial_list"]
    assert trial["hyperparameters"] == {"factor": 2, "net": {"sizes": [3, 4]}}
    events = [event.data for event in cluster.events() if event.correlation_id == str(experiment)]
    validations = [(data.batches, data.metrics["total"]) for data in events if data.TYPE == "ValidationReported"]  # type: ignore[attr-defined]
    assert validations == [(10, 90.0), (20, 380.0), (30, 870.0)]
    (submitted,) = [data for data in events if data.TYPE == "ExperimentSubmitted"]
    assert "imported" in json.loads(submitted.to_json())["config"]["labels"]
    points = cluster.json("exp", "metrics", str(experiment))
    assert [point["batches"] for point in points] == [10, 20, 30]
    assert "alert (warning): done: sum 870" in cluster.cli("exp", "logs", str(experiment)).stdout
    cluster.cli("ckpt", "download", view["best_checkpoint"]["id"], "--output", tmp_path / "fetched")
    (found,) = (tmp_path / "fetched").rglob("sum.txt")
    assert found.read_text() == "870"
    cluster.cli("exp", "replay", str(experiment), "--verify")

    again = cluster.json("run", "import", record, "--in-place")["id"]
    cluster.cli("exp", "wait", str(again))
    assert cluster.json("exp", "describe", str(again))["best_metric"] == 870.0

    refused = cluster.cli("run", "import", tmp_path, check=False)
    assert refused.returncode == 1
    assert f"{tmp_path} holds no record of a run" in refused.stderr


def test_a_damaged_checkpoint_is_passed_over_and_on_record(cluster: LiveCluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (tmp_path / "config.yaml").write_text(
        f"""\
name: damaged
entrypoint: train.py
hyperparameters: {{factor: 2}}
searcher: {{name: single, metric: total, max_length: {{epochs: 4}}, smaller_is_better: false}}
min_checkpoint_period: {{batches: 10}}
checkpoint_policy: all
environment: {{variables: {{TEST_HOLD_AT: "25", TEST_HOLD_FILE: {go}}}}}
"""
    )
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", SCRIPT.parent)["id"]
    cluster.wait_for(go.with_suffix(".held").exists)
    cluster.cli("exp", "pause", str(experiment))
    go.touch()
    cluster.wait_for(lambda: "AllocationReleased" in [event.type for event in of(cluster, experiment)])
    *_, before, latest = cluster.json("ckpt", "ls", "--experiment", str(experiment))
    assert before["batches"] == 20
    directory = Path(latest["location"].removeprefix("file://")).parents[1]
    manifest = json.loads((directory / "manifests" / f"{latest['id']}.json").read_text())
    blob = directory / next(file["blob"] for file in manifest["files"] if file["path"] == "sum.txt")
    blob.chmod(0o644)
    blob.write_text("7")

    cluster.cli("exp", "resume", str(experiment))
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert view["best_metric"] == float(sum(2 * step for step in range(40))), "as if nothing had happened"
    [damaged] = [event for event in of(cluster, experiment) if event.type == "CheckpointDamaged"]
    assert damaged.stream == f"trial/{experiment}-1"
    assert damaged.data.checkpoint_id == latest["id"]  # type: ignore[attr-defined]
    assert damaged.data.resumed_from == before["id"]  # type: ignore[attr-defined]
    assert "sum.txt has 1 bytes where 3 were saved" in damaged.data.reason  # type: ignore[attr-defined]
    assert [item["id"] for item in view["damaged_checkpoints"]] == [latest["id"]]
    told = f"resumed from {before['id']} instead"
    for command in (
        ("exp", "describe", str(experiment)),
        ("trial", "describe", f"{experiment}-1"),
        ("ckpt", "ls", "--experiment", str(experiment)),
        ("exp", "replay", str(experiment)),
    ):
        assert told in " ".join(cluster.cli(*command).stdout.split()), command
    cluster.cli("exp", "replay", str(experiment), "--verify")


def of(cluster: LiveCluster, experiment: int) -> list[Event]:
    return [event for event in cluster.events() if event.correlation_id == str(experiment)]
