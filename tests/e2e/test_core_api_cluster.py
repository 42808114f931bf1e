"""Scripts in a real cluster: a search over the example, and a run without a cluster that is brought in afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.client.messages import items
from tenuto.schemas.envelope import Event
from tests.support import light_digits
from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
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
    with tempfile.TemporaryDirectory(prefix="tenuto-core-api-") as directory, LiveCluster(Path(directory)) as cluster:
        yield cluster


def test_a_search_over_a_script(cluster: LiveCluster, tmp_path: Path) -> None:
    model = light_digits.copied(EXAMPLE, tmp_path / "model")
    experiment = cluster.json("exp", "create", EXAMPLE / "config.yaml", model)["id"]
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert (view["state"], sum(view["trials"].values())) == ("completed", 8)
    assert view["best_metric"] > 0.9
    assert view["best_checkpoint"]
    cluster.cli("exp", "replay", str(experiment), "--verify")

    def shown() -> list[object]:
        found = cluster.json("exp", "describe", str(experiment))
        trials = [(trial["id"], trial["state"], trial["batches"], trial["best_metric"]) for trial in found["trial_list"]]
        return [found["state"], found["trials"], found["best_metric"], found["best_trial_id"], *trials]

    before = shown()
    assert "The views are folded again from" in cluster.cli("views", "rebuild").stdout
    assert shown() == before
    assert cluster.cli("parked", "ls").stdout.strip() == "Nothing is parked."
    check_deletion(cluster, experiment)


def check_deletion(cluster: LiveCluster, experiment: int) -> None:
    """Nothing is left of it outside of the record, and the record tells of it."""
    shared = cluster.directory / "shared"
    files = {path for path in (shared / "checkpoints" / str(experiment)).rglob("*") if path.is_file()}
    assert files
    client, about = cluster.client(), f"/experiments/{experiment}"
    assert client.get(f"{about}/metrics")
    context = cluster.json("exp", "describe", str(experiment))["context_hash"]
    os.utime(shared / "contexts" / f"{context}.tar.gz", (0, 0))
    cluster.cli("exp", "delete", str(experiment), "--now", "--yes")
    cluster.wait_for(lambda: not any(path.exists() for path in (*files, shared / "contexts" / f"{context}.tar.gz")))
    cluster.wait_for(lambda: items(client.get(f"{about}/logs")) == items(client.get(f"{about}/metrics")) == [])
    assert cluster.json("exp", "describe", str(experiment))["deleted_us"]
    cluster.cli("exp", "replay", str(experiment), "--verify")
    assert cluster.cli("parked", "ls").stdout.strip() == "Nothing is parked."


def test_trials_that_end_by_themselves_are_completed_and_leave_their_places_to_others(cluster: LiveCluster) -> None:
    model = ROOT / "tests" / "support" / "scripts" / "ends_early"
    experiment = cluster.json("exp", "create", model / "config.yaml", model)["id"]
    cluster.cli("exp", "wait", str(experiment))
    trials = {trial["number"]: trial for trial in cluster.json("exp", "describe", str(experiment))["trial_list"]}
    assert {number: (trial["state"], trial["length"]) for number, trial in trials.items()} == {
        1: ("completed", 3),
        2: ("completed", 8),
        3: ("completed", 3),
        4: ("completed", 8),
    }, "of four two go on; the first is second best and cannot, so the fourth does"
    assert {trial["failures"] for trial in trials.values()} == {0}
    assert trials[3]["reason"] == (
        "Its own code ended its training at 3 batches, before the 4 batches asked for (trial 3 has had enough): it counts at "
        "rung 0 (4 batches) by its last validation, loss 3."
    )
    events = items(cluster.client().get("/events", experiment=experiment, type="TrainingEnded"))
    assert {(event["data"]["trial_id"], event["data"]["batches"], event["data"]["said"]) for event in events} == {
        (f"{experiment}-{number}", 3, f"trial {number} has had enough") for number in (1, 3)
    }
    for shown in (
        cluster.cli("trial", "describe", f"{experiment}-1").stdout,
        cluster.cli("exp", "describe", str(experiment)).stdout,
        cluster.cli("exp", "why", f"{experiment}-1").stdout,
    ):
        assert "trial 1 has had enough" in " ".join(shown.split())
    assert cluster.json("exp", "replay", str(experiment), "--verify")["ok"]


SEARCH = """\
name: summing in rungs
entrypoint: train.py
hyperparameters: {factor: {type: int, minval: 1, maxval: 1000}}
searcher:
  {name: asha, metric: total, smaller_is_better: false, max_length: {epochs: 4}, min_rung_length: 1, divisor: 2,
   max_trials: 4, max_concurrent_trials: 2}
min_validation_period: {epochs: 1}
reproducibility: {experiment_seed: 7}
"""


def test_a_search_in_rungs_goes_on_longer_and_with_more_trials(cluster: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SEARCH)
    parent = cluster.json("exp", "create", tmp_path / "config.yaml", SCRIPT.parent)["id"]
    cluster.cli("exp", "wait", str(parent))
    before = cluster.json("exp", "describe", str(parent))
    assert before["rungs"] == "1, 2, 4 epochs; at most 4 trials"
    longer = ("--set", "searcher.max_length.epochs=8", "--set", "searcher.max_trials=6")
    child = cluster.json("exp", "continue", str(parent), *longer)["id"]
    cluster.cli("exp", "wait", str(child))
    view = cluster.json("exp", "describe", str(child))
    assert (view["state"], view["relation"], view["parent_id"]) == ("completed", "continuation", str(parent))
    assert view["rungs"] == "1, 2, 4, 8 epochs; at most 6 trials"
    trials = {trial["number"]: trial for trial in view["trial_list"]}
    assert {n: trials[n]["hyperparameters"] for n in range(1, 5)} == {
        trial["number"]: trial["hyperparameters"] for trial in before["trial_list"]
    }
    assert len(trials) == 6
    assert {trial["length"] for trial in trials.values()} <= {1, 2, 4, 8}
    [best] = [trial for trial in trials.values() if trial["id"] == view["best_trial_id"]]
    assert best["length"] == 8
    assert view["best_metric"] == sum(best["hyperparameters"]["factor"] * step for step in range(80)), "no step twice, none lost"
    after = cluster.json("exp", "describe", str(parent))
    assert [after[name] for name in ("best_trial_id", "best_metric", "best_checkpoint_id")] == [
        before[name] for name in ("best_trial_id", "best_metric", "best_checkpoint_id")
    ]
    kept = {item["id"] for item in cluster.json("ckpt", "ls", "--experiment", str(parent)) if item["deleted_us"] is None}
    assert before["best_checkpoint_id"] in kept
    cluster.cli("ckpt", "verify", before["best_checkpoint_id"])
    for experiment in (parent, child):
        cluster.cli("exp", "replay", str(experiment), "--verify")


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
    points = cluster.once(lambda: cluster.json("exp", "metrics", str(experiment)), lambda found: len(found) == 3)
    assert [point["batches"] for point in points] == [10, 20, 30]
    assert (alert := "alert (warning): done: sum 870") in cluster.log(str(experiment), alert)
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


BEGINNING = """\
import tenuto
with tenuto.init() as run:
    weights, steps = 0, 0
    if (latest := run.checkpoint.latest) is not None:
        with run.checkpoint.restore() as directory:
            weights = int((directory / "weights").read_text())
        steps = latest.steps
        print(f"weights {weights}, at step {steps}, weights_only {latest.weights_only}")
    for operation in run.operations():
        while steps < operation.steps and not run.should_preempt():
            weights, steps = weights + 1, steps + 1
        with run.checkpoint.save(steps) as directory:
            (directory / "weights").write_text(str(weights))
        run.report_validation(steps, {"total": weights})
"""


def test_a_script_begins_with_the_weights_of_another_experiments_checkpoint(cluster: LiveCluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEGINNING)
    config = tmp_path / "config.yaml"
    config.write_text(
        "name: beginning\nentrypoint: train.py\nhyperparameters: {x: {type: double, minval: 0, maxval: 1}}\n"
        "searcher: {name: single, metric: total, max_length: {batches: 10}}\n"
    )
    first = str(cluster.json("exp", "create", config, tmp_path)["id"])
    cluster.cli("exp", "wait", first)
    checkpoint = cluster.json("exp", "describe", first)["best_checkpoint_id"]
    # Promotion: who waits at a rung goes on from its own checkpoint, not from that of the other experiment again.
    asha = (
        "searcher={name: asha, metric: total, max_length: {batches: 8}, max_trials: 3, divisor: 2, max_rungs: 2, "
        f"smaller_is_better: false, source_checkpoint: {checkpoint}}}"
    )
    second = str(cluster.json("exp", "create", config, tmp_path, "--set", asha)["id"])
    cluster.cli("exp", "wait", second)
    events = [event.data for event in cluster.events() if event.correlation_id == second]
    found = [(data.batches, data.metrics["total"]) for data in events if data.TYPE == "ValidationReported"]  # type: ignore[attr-defined]
    assert set(found) == {(4, 14.0), (8, 18.0)}, "ten steps of the other one, and their own from the first step on"
    both = "weights 10, at step 0, weights_only True", f"begins with the weights of checkpoint {checkpoint} at step 0"
    said = cluster.once(lambda: cluster.log(second), lambda found: min(map(found.count, both)) >= 3)
    assert [said.count(words) for words in both] == [3, 3]


DECLARING = """\
import sys
import helper
import tenuto
with tenuto.init("config.yaml", hyperparameters={"factor": int(sys.argv[1])}) as run:
    total = float((tenuto.data(run.hyperparameters["data"], name="points")).read_text()) * helper.SCALE
    for operation in run.operations():
        run.report_validation(operation.steps, {"total": total * run.hyperparameters["factor"]})
"""


def test_imported_runs_are_compared_like_others(cluster: LiveCluster, tmp_path: Path) -> None:
    points = tmp_path / "points.txt"
    (tmp_path / "config.yaml").write_text(
        f"name: declaring\nentrypoint: train.py\nhyperparameters: {{factor: 2, data: {points}}}\n"
        "searcher: {name: single, metric: total, max_length: {batches: 3}}\n"
    )
    (tmp_path / "train.py").write_text(DECLARING)
    (tmp_path / "helper.py").write_text("SCALE = 1\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    experiments = []
    for content, factor, helper in (("1", "2", "SCALE = 1\n"), ("5", "3", "SCALE = 1  # as before\n")):
        points.write_text(content)
        (tmp_path / "helper.py").write_text(helper)
        subprocess.run([sys.executable, "train.py", factor], cwd=tmp_path, env=clean, check=True)
        record = tmp_path / "tenuto-runs" / f"declaring-{len(experiments) + 1}"
        experiments.append(str(cluster.json("run", "import", record)["id"]))
    for experiment in experiments:
        cluster.cli("exp", "wait", experiment)
    found = cluster.json("diff", *experiments)
    data, factor_changed, seed, *others = found["differences"]
    assert (data["kind"], data["name"]) == ("data", "points")
    assert (factor_changed["name"], factor_changed["overridden"]) == ("hyperparameters.factor", True)
    assert seed["kind"] == "drawn_seed"
    assert {item["name"] for item in others if item["effect"] != "none"} == set(), others
    assert "helper.py" in {item["name"] for item in others}, "comments alone"
    record = cluster.json("trial", "record", f"{experiments[0]}-1")
    [start] = record["starts"]
    assert record["environments"][start["environment_hash"]]["packages"]["tenuto"]
    assert record["origin"]["command_line"] == "train.py 2"


HELD = """\
name: held
entrypoint: train.py
hyperparameters: {{factor: 2, variables: {{TEST_HOLD_AT: "{at}", TEST_HOLD_FILE: {go}}}}}
searcher: {{name: single, metric: total, max_length: {{epochs: 4}}, smaller_is_better: false}}
min_checkpoint_period: {{batches: 10}}
checkpoint_policy: all
"""
TOTAL = float(sum(2 * step for step in range(40)))


def test_a_checkpoint_that_was_reported_counts_though_its_worker_died_before_it_was_recorded(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    (tmp_path / "config.yaml").write_text(HELD.format(at=15, go=go))
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", SCRIPT.parent)["id"]
    cluster.wait_for(go.with_suffix(".held").exists)
    store = cluster.directory / "shared" / "checkpoints" / str(experiment)
    tracker = cluster.pid("tracker")
    os.kill(tracker, signal.SIGSTOP)
    try:
        go.touch()
        # A checkpoint is saved when the one before is reported: those at 20 and 30 are on the agent's disk, at 40 perhaps.
        cluster.wait_for(lambda: any(store.rglob("*-40.json")))
        cluster.kill("worker")
    finally:
        os.kill(tracker, signal.SIGCONT)
    cluster.cli("exp", "wait", str(experiment))
    assert cluster.json("exp", "describe", str(experiment))["best_metric"] == TOTAL
    saved = [event.data for event in of(cluster, experiment) if event.type == "CheckpointSaved"]
    first = [data.batches for data in saved if data.allocation_id == f"{experiment}-1-1"]  # type: ignore[attr-defined]
    assert first in ([10, 20, 30], [10, 20, 30, 40])
    assert len({data.batches for data in saved}) == len(saved) == 4, "no step was trained twice"  # type: ignore[attr-defined]
    cluster.cli("exp", "replay", str(experiment), "--verify")


def test_a_damaged_checkpoint_is_passed_over_and_on_record(cluster: LiveCluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    (tmp_path / "config.yaml").write_text(HELD.format(at=25, go=go))
    experiment = cluster.json("exp", "create", tmp_path / "config.yaml", SCRIPT.parent)["id"]
    cluster.wait_for(go.with_suffix(".held").exists)
    cluster.cli("exp", "pause", str(experiment))  # it waits until it is told to leave
    cluster.wait_for(lambda: "AllocationReleased" in [event.type for event in of(cluster, experiment)])
    *_, before, latest = cluster.json("ckpt", "ls", "--experiment", str(experiment))
    assert before["batches"] == 20
    directory = cluster.directory / "shared" / "checkpoints" / str(experiment) / f"{experiment}-1"
    manifest = json.loads((directory / "manifests" / f"{latest['id']}.json").read_text())
    blob = directory / next(file["blob"] for file in manifest["files"] if file["path"] == "sum.txt")
    blob.chmod(0o644)
    blob.write_text("7")

    go.touch()
    cluster.cli("exp", "resume", str(experiment))
    cluster.cli("exp", "wait", str(experiment))
    view = cluster.json("exp", "describe", str(experiment))
    assert view["best_metric"] == TOTAL, "as if nothing had happened"
    [damaged] = [event for event in of(cluster, experiment) if event.type == "CheckpointDamaged"]
    assert damaged.stream == f"trial/{experiment}-1"
    assert damaged.data.checkpoint_id == latest["id"]  # type: ignore[attr-defined]
    assert damaged.data.resumed_from == before["id"]  # type: ignore[attr-defined]
    assert "sum.txt has 1 bytes where 3 were saved" in damaged.data.reason  # type: ignore[attr-defined]
    assert [item["id"] for item in view["damaged_checkpoints"]] == [latest["id"]]
    told = f"resumed from {before['id']} instead"
    for command in (("exp", "describe", str(experiment)), ("trial", "describe", f"{experiment}-1")):
        assert told in " ".join(cluster.cli(*command).stdout.split()), command
    cluster.cli("exp", "replay", str(experiment), "--verify")


def of(cluster: LiveCluster, experiment: int) -> list[Event]:
    return [event for event in cluster.events() if event.correlation_id == str(experiment)]
