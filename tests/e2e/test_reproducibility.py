"""The two stories that a platform must not let happen again, with real processes.

Dave's model crashes, and he loses a day. Leslie's result cannot be reproduced, because her data and her command line had changed.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.kernel.storage import checkpoints
from tenuto.schemas.envelope import Event
from tenuto.workers.core_api.local_record import checkpoints_of, store_of
from tests.integration.test_exact_resume import assert_equal
from tests.support.checkpoint_reports import recorded_files
from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MODEL = ROOT / "tests" / "e2e" / "models" / "regression"
EVERYTHING = ROOT / "tests" / "support" / "trials" / "everything"
CHECKPOINT_PERIOD = 20
LEASE = {"TENUTO_LEASE_SECONDS_MAX": "8", "TENUTO_HEARTBEAT_SECONDS": "0.5"}
"""A machine that is gone is missed sooner than by default."""


class Bench:
    """A cluster, a data directory of Leslie's, and the experiment that everything is compared with."""

    def __init__(self, directory: Path) -> None:
        self.cluster = LiveCluster(directory / "cluster")
        self.cluster.environment |= LEASE
        self.data = directory / "data"
        self.crash = directory / "crash"
        self.hold = directory / "hold"
        """While it is there, a trial of MODEL stays in its batch 50."""
        self.data.mkdir()
        self.write_points(1)
        self.original = 0

    def write_points(self, seed: int) -> None:
        rng = random.Random(seed)
        rows = [",".join(f"{rng.random():.6f}" for _ in range(5)) for _ in range(64)]
        (self.data / "points.csv").write_text("\n".join(rows) + "\n")

    def create(self, *options: str, model: Path = MODEL) -> int:
        answer = self.cluster.json(
            "exp", "create", MODEL / "config.yaml", model, "--set", f"hyperparameters.data={self.data}", *options
        )
        return int(answer["id"])

    def finished(self, experiment: int) -> dict[str, Any]:
        self.cluster.cli("exp", "wait", str(experiment))
        described: dict[str, Any] = self.cluster.json("exp", "describe", str(experiment))
        return described

    def log_text(self, experiment: int, *words: str) -> str:
        return self.cluster.log(str(experiment), *words)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("reproducibility"))
    bench.cluster.up()
    try:
        bench.original = bench.create("--set", "reproducibility.experiment_seed=11")
        bench.finished(bench.original)
        yield bench
    finally:
        bench.cluster.down()


def of_trial(bench: Bench, experiment: int, type_: str) -> list[Any]:
    events = bench.cluster.events()
    return [event.data for event in events if event.correlation_id == str(experiment) and event.type == type_]


def test_each_start_is_on_record(bench: Bench) -> None:
    record = bench.cluster.json("trial", "record", f"{bench.original}-1")
    [start] = record["starts"]
    assert [(item["name"], item["method"], item["files"]) for item in start["data"]] == [("training data", "content", 1)]
    environment = record["environments"][start["environment_hash"]]
    assert environment["packages"]["torch"]
    assert "torch" in environment["loaded"]
    assert environment["numerics"]["parameter_dtypes"] == "float32"
    assert environment["threads"]["torch"] == "1"
    assert environment["hardware"]["cpu_model"]
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode == 0:
        assert len(record["origin"]["git"]["commit"]) == 40
    assert "exp create" in record["origin"]["command_line"]
    assert record["origin"]["overrides"]["hyperparameters.data"] == f'"{bench.data}"'
    written_out = [item for item in of_trial(bench, bench.original, "EnvironmentRecorded") if item.environment is not None]
    assert len(written_out) == 1, "an environment is written out once per experiment"


def test_dave_crashes_is_killed_and_loses_nothing(bench: Bench) -> None:
    """The same trial again, but its code raises once and its process is killed -9 later: metrics and weights are equal."""
    trial = f"{bench.original}-2"
    bench.crash.touch()
    bench.hold.touch()  # else it could end before it is killed
    child = bench.cluster.json("exp", "reproduce", str(bench.original), "--trial", trial, "--detach")["id"]
    try:
        wait_checkpoint(bench, child, batches=2 * CHECKPOINT_PERIOD)
        bench.cluster.kill("worker")
    finally:
        bench.hold.unlink()
    described = bench.finished(child)
    report = bench.cluster.json("exp", "reproduction", str(child))
    assert (report["reproduces"], report["equal"]) == (trial, True), report
    assert report["results"]["weights_equal"] is True
    assert report["results"]["metrics_equal"] is True
    assert [item for item in report["differences"] if item["effect"] != "none"] == []
    [again] = described["trial_list"]
    assert again["allocations"] == 3, "once crashed, once killed"
    assert again["failures"] == 1
    validated = Counter(item.batches for item in of_trial(bench, child, "ValidationReported"))
    assert set(validated.values()) == {1}, "nothing is reported twice"
    assert sorted(validated) == [20, 40, 60, 80]
    bench.cluster.cli("exp", "replay", str(child), "--verify")
    told = f"resumed from checkpoint {child}-1-1-20 at batch 20", "the model crashed, as Dave's does"
    log = bench.log_text(child, *told)
    assert "another environment" not in log
    assert [words for words in told if words not in log] == []


def test_a_trial_in_the_foreground_ends_with_the_weights_of_that_in_the_cluster(bench: Bench, tmp_path: Path) -> None:
    """The first trial of the same experiment without the cluster: bit for bit the same, and comparable once it is imported."""
    cluster, record = bench.cluster, tmp_path / "record"
    settings = ("--set", f"hyperparameters.data={bench.data}", "--set", "reproducibility.experiment_seed=11")
    cluster.cli("exp", "create", "--local", MODEL / "config.yaml", MODEL, *settings, "--record", record)
    saved = checkpoints_of(record)[-1]
    store, ours = store_of(record), {}
    for file in checkpoints.read_manifest(store, saved.checkpoint_id).files:
        if (path := store.local_path(file.blob)) is not None:
            ours[file.path] = path
    theirs = recorded_files(
        [item for item in of_trial(bench, bench.original, "CheckpointSaved") if item.trial_id == f"{bench.original}-1"][-1],
        cluster.directory / "shared",
    )
    assert ours.keys() == theirs.keys()
    assert_equal(torch.load(ours["state.pt"], weights_only=True), torch.load(theirs["state.pt"], weights_only=True))
    assert [name for name in ours if name != "tenuto.json" and ours[name].read_bytes() != theirs[name].read_bytes()] == []

    imported = cluster.json("run", "import", record)["id"]
    assert cluster.json("run", "import", record)["id"] == imported, "twice imported is one"
    described = bench.finished(imported)
    assert "imported" in described["config"]["labels"]
    [trial] = described["trial_list"]
    original = cluster.json("exp", "describe", str(bench.original))["trial_list"][0]
    assert (trial["hyperparameters"], trial["seed"]) == (original["hyperparameters"], original["seed"])
    found = cluster.json("diff", f"{bench.original}-1", f"{imported}-1")
    assert found["results"]["metrics_equal"] is True
    assert {item["effect"] for item in found["differences"]} <= {"none"}, found["differences"]


def wait_checkpoint(bench: Bench, experiment: int, batches: int) -> None:
    wait_for(
        bench,
        lambda event: (
            (event.type, event.correlation_id) == ("CheckpointSaved", str(experiment)) and event.data.batches >= batches  # type: ignore[attr-defined]
        ),
    )


def wait_for(bench: Bench, is_it: Callable[[Event], bool]) -> None:
    position = 0
    while not any(map(is_it, bench.cluster.events())):
        position = bench.cluster.wait_events(position, 1)


def everything(hold: Path) -> dict[str, Any]:
    """A GAN with dropout, bf16, gathered gradients, shuffling, augmentation and loader workers."""
    return {
        "name": "everything",
        "entrypoint": "model_def:Everything",
        "hyperparameters": {"loader_workers": 2, "stream": False, "hold": str(hold)},
        "searcher": {"name": "single", "metric": "distance", "max_length": {"batches": 30}},
        "min_checkpoint_period": {"batches": 4},
        "min_validation_period": {"batches": 11},
        "optimizations": {"aggregation_frequency": 3, "mixed_precision": "bf16", "clip_grad_norm": 1.0},
    }


def test_a_trial_that_moves_between_machines_ends_the_same(bench: Bench, tmp_path: Path) -> None:
    """Pre-empted on the first machine, it goes on at a second one; that one dies, and it ends on the first."""
    cluster, hold = bench.cluster, tmp_path / "hold"
    hold.mkdir()
    (tmp_path / "config.yaml").write_text(json.dumps(everything(hold)))
    original = int(cluster.json("exp", "create", tmp_path / "config.yaml", EVERYTHING)["id"])
    bench.finished(original)
    for batch in ("9", "23"):
        (hold / batch).touch()
    [first] = [agent["id"] for agent in cluster.json("agent", "ls")]
    moved = int(cluster.json("exp", "reproduce", str(original), "--detach")["id"])
    wait_checkpoint(bench, moved, batches=8)
    with cluster.another_agent("second") as second:
        wait_for(bench, lambda event: event.type == "AgentJoined" and event.data.agent_id == "second")
        cluster.cli("agent", "disable", first)  # it stays in its batch until it is told to leave
        wait_checkpoint(bench, moved, batches=20)
        cluster.cli("agent", "enable", first)
        second.die()
        (hold / "23").unlink()
        [trial] = bench.finished(moved)["trial_list"]
    granted = of_trial(bench, moved, "AllocationGranted")
    assert [slots.agent_id for item in granted for slots in item.slots] == [first, "second", first]
    assert trial["failures"] == 0, "a machine that dies is not the trial's fault"
    report = cluster.json("exp", "reproduction", str(moved))
    assert report["equal"] is True, report
    assert_equal(final_state(bench, moved), final_state(bench, original))


def final_state(bench: Bench, experiment: int) -> dict[str, Any]:
    """All that the last checkpoint holds but the record of who made it: weights, optimizers, generators."""
    files = recorded_files(of_trial(bench, experiment, "CheckpointSaved")[-1], bench.cluster.directory / "shared")
    found: dict[str, Any] = {name: path.read_bytes() for name, path in files.items() if name not in ("tenuto.json", "state.pt")}
    return {**dict(sorted(found.items())), "state": torch.load(files["state.pt"], weights_only=True)}


def test_leslie_is_told_what_had_changed(bench: Bench) -> None:
    bench.write_points(2)
    try:
        other = bench.create("--set", "hyperparameters.batch_size=16", "--set", "reproducibility.experiment_seed=11")
        forked = int(bench.cluster.json("exp", "fork", str(bench.original), "--set", "searcher.max_trials=1")["id"])
        bench.finished(other)
        bench.finished(forked)
    finally:
        bench.write_points(1)
    found = bench.cluster.json("diff", str(bench.original), str(other))
    first, second = found["differences"][:2]
    assert (first["kind"], first["name"], first["effect"]) == ("data", "training data", "likely")
    assert (second["name"], second["a"], second["b"]) == ("hyperparameters.batch_size", 8, 16)
    assert second["overridden"]
    assert "set on the command line" in second["note"]
    assert {item["effect"] for item in found["differences"][2:]} <= {"none"}, found["differences"]
    assert found["results"]["metrics_equal"] is False
    assert found["results"]["first_difference_batches"] == 20
    # An experiment that was made from another one is warned at its start.
    warning = f"the data 'training data' are not what they were when trial {bench.original}-"
    assert warning in bench.log_text(forked, warning)
    [recorded] = of_trial(bench, forked, "DataRecorded")
    assert recorded.changed_from is not None
    shown = bench.cluster.cli("diff", f"{bench.original}-1", f"{forked}-1").stdout
    assert "training data" in shown
    assert shown.index("training data") < shown.index("The validations differ from batch 20 on.")


def test_an_experiment_goes_on_from_its_checkpoints(bench: Bench) -> None:
    child = int(
        bench.cluster.json(
            "exp", "continue", str(bench.original), "--set", "searcher.max_length.batches=100", "--set", "searcher.max_trials=3"
        )["id"]
    )
    described = bench.finished(child)
    assert [trial["hyperparameters"]["batch_size"] for trial in described["trial_list"]] == [8, 8, 8]
    before = bench.cluster.json("exp", "describe", str(bench.original))["trial_list"]
    assert [trial["hyperparameters"] for trial in described["trial_list"][:2]] == [trial["hyperparameters"] for trial in before]
    log = bench.cluster.once(lambda: bench.log_text(child), lambda found: found.count("at batch 80") >= 2)
    assert log.count("at batch 80") == 2, "two trials go on; the third begins"
    refused = bench.cluster.cli("exp", "continue", str(child), "--set", "hyperparameters.batch_size=4", check=False)
    assert refused.returncode != 0
    assert "hyperparameters.batch_size: cannot change when an experiment is continued" in refused.stderr


def edited(directory: Path, before: str, after: str) -> Path:
    """A copy of the model directory with one edit in its code, and others that change nothing."""
    copy = shutil.copytree(MODEL, directory, ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / "model_def.py").read_text()
    assert before in source
    (copy / "model_def.py").write_text(f"# Tried again.\n{source.replace(before, after)}")
    (copy / "README.md").write_text("Tried again.")
    return copy


def installed(directory: Path, version: str) -> str:
    """A package `planted` of that version; returns the option that puts it on the path of the workers."""
    (directory / f"planted-{version}.dist-info").mkdir(parents=True)
    (directory / "planted.py").write_text(f"__version__ = {version!r}\n")
    return f"environment.variables.PYTHONPATH={directory}"


def test_each_planted_cause_is_named_first(bench: Bench, tmp_path: Path) -> None:
    short = (
        "--set", "searcher.name=single", "--set", "searcher.max_length.batches=4", "--set", "hyperparameters.learning_rate=0.05",
    )  # fmt: skip
    seeded = (*short, "--set", "reproducibility.experiment_seed=1")
    base = bench.create(*seeded)
    # What else differs between two runs that somebody made weeks apart.
    noise = (
        "--set", "name=again", "--set", "description=second try", "--set", "resources.priority=30", "--set", "max_restarts=2",
        "--set", "log_period.batches=2", "--set", "min_checkpoint_period.batches=3",
    )  # fmt: skip
    short, seeded = (*short, *noise), (*seeded, *noise)
    same = edited(tmp_path / "same", "STEP_SECONDS = 0.02", "STEP_SECONDS  =  0.02")
    code = edited(tmp_path / "code", "momentum=0.9", "momentum=0.8")
    dtype = edited(tmp_path / "dtype", "torch.float32", "torch.float64")
    seed = bench.create(*short, "--set", "reproducibility.experiment_seed=2", model=same)
    others = [bench.create(*seeded, model=model) for model in (code, dtype)]
    # Last those with variables of their own, each of which needs a warm process of its own: they would end that of the others.
    old = bench.create(*seeded, "--set", installed(tmp_path / "old", "1.0"))
    new = bench.create(*seeded, "--set", installed(tmp_path / "new", "2.0"), model=same)
    threads = bench.create(*seeded, "--set", "environment.variables.OMP_NUM_THREADS=2", model=same)
    planted = [
        (base, seed, "seed", "seed"),
        (base, others[0], "code", "model_def.py"),
        (base, others[1], "dtype", "parameter_dtypes"),
        (old, new, "package", "planted"),
        (base, threads, "setting", "OMP_NUM_THREADS"),
    ]
    client = bench.cluster.client()
    for before, after, kind, name in planted:
        for experiment in (before, after):
            bench.cluster.cli("exp", "wait", str(experiment))
        first = client.get("/diff", a=before, b=after)["differences"][0]
        assert first["kind"] == kind, first
        assert name in first["name"], first
