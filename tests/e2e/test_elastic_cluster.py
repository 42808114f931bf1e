"""Two users share two agents, with real processes: an elastic trial gives a slot up for the other's, and takes it back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import light_digits
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MODELS = ROOT / "tests" / "e2e" / "models"
HYPERPARAMETERS = {
    "learning_rate": 0.01, "channels": 12, "dropout": 0.1, "activation": "relu", "weight_decay": 1e-4, "batch_size": 32,
}  # fmt: skip


def config(name: str, batches: int, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "entrypoint": "unhurried:UnhurriedTrial", "hyperparameters": HYPERPARAMETERS, "resources": resources,
        "searcher": {
            "name": "single", "metric": "accuracy", "smaller_is_better": False, "max_length": {"batches": batches},
        },
        "min_checkpoint_period": {"batches": 25}, "reproducibility": {"experiment_seed": 3},
    }  # fmt: skip


class Shared(LiveCluster):
    tokens: dict[str, str]

    def submit(self, description: dict[str, Any], user: str, model: Path | None = None) -> int:
        path = self.directory / f"{description['name']}.json"
        path.write_text(json.dumps(description))
        admin = dict(self.environment)
        self.environment["TENUTO_TOKEN"] = self.tokens[user]
        try:
            return int(self.json("exp", "create", path, model or self.directory / "unhurried")["id"])
        finally:
            self.environment = admin

    def facts(self, kind: str, trial: str) -> list[Any]:
        return [event.data for event in self.events() if event.type == kind and event.data.trial_id == trial]  # type: ignore[attr-defined]

    def sizes(self, trial: str) -> list[int]:
        return [sum(len(part.slot_ids) for part in data.slots) for data in self.facts("AllocationGranted", trial)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    cluster = Shared(tmp_path_factory.mktemp("shared") / "cluster", cpu_slots=1)
    cluster.environment |= OUTLIVES_THE_TEST  # tests count runs, and say on which of the two agents they are
    cluster.up("--agents", "2")
    light_digits.copied(ROOT / "examples" / "digits", cluster.directory / "unhurried")
    shutil.copy(MODELS / "unhurried" / "unhurried.py", cluster.directory / "unhurried")
    try:
        cluster.tokens = {user: cluster.json("user", "create", user)["token"] for user in ("ada", "bob")}
        cluster.wait_for(lambda: len(cluster.json("agent", "ls")) == 2)
        yield cluster
    finally:
        cluster.down()


def test_an_elastic_trial_gives_a_slot_to_another_user_and_takes_it_back(cluster: Shared, tmp_path: Path) -> None:
    elastic = config("elastic", 100_000, {"slots_per_trial": {"min": 1, "max": 2, "keep_seconds": 0}})
    elastic["distributed"] = {"global_batch_size": "scale", "learning_rate_scaling": "linear"}
    own = cluster.submit(elastic, "ada")
    cluster.wait_for(lambda: bool(cluster.facts("CheckpointSaved", f"{own}-1")))
    assert cluster.sizes(f"{own}-1") == [2]
    other = cluster.submit(config("other", 10, {}), "bob")
    cluster.cli("exp", "wait", str(other))
    cluster.wait_for(lambda: cluster.sizes(f"{own}-1")[:3] == [2, 1, 2])
    known = len(cluster.facts("CheckpointSaved", f"{own}-1"))
    cluster.wait_for(lambda: len(cluster.facts("CheckpointSaved", f"{own}-1")) > known)
    both = ("2 times the learning rate (linear)", "1 slot with the learning rate as it is given")
    log = cluster.log(f"{own}-1", *both, kind="trial")
    said = [log.index(words) for words in both]
    assert said == sorted(said)
    rows = cluster.json("job", "ls")["pools"][0]["rows"]
    assert [(row["experiment_id"], row["user"], row["slots"]) for row in rows] == [(own, "ada", 2)]
    cluster.cli("pool", "set", "default", "fair_share", "--half-life-hours", 24)
    (pool,) = cluster.json("pool", "ls")
    shown = {name: pool[name] for name in ("pool", "policy", "usage_half_life_hours", "agents", "capacity")}
    assert shown == {"pool": "default", "policy": "fair_share", "usage_half_life_hours": 24, "agents": 2, "capacity": 2}
    assert "fair_share, half-life 24 h" in cluster.cli("pool", "ls").stdout
    cluster.cli("pool", "set", "default", "priority")
    picture = tmp_path / "slots.png"
    cluster.cli("job", "picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    resized = [data.reason.numbers for data in cluster.facts("AllocationResized", f"{own}-1")]
    assert [(numbers["slots_from"], numbers["slots_to"]) for numbers in resized[:2]] == [(2, 1), (1, 2)]
    cluster.cli("exp", "kill", str(own))
    cluster.cli("exp", "wait", str(own), check=False)


WATCHER = """
import os
import tenuto

with tenuto.init() as run:
    for operation in run.operations():
        print("sees", repr(os.environ["CUDA_VISIBLE_DEVICES"]), "with", os.environ["OMP_NUM_THREADS"], "thread", flush=True)
        run.report_validation(operation.steps, {"accuracy": 1.0})
"""


@pytest.fixture
def full(cluster: Shared) -> Iterator[list[int]]:
    """Two experiments that have all slots. Those that a test adds are ended, too."""
    experiments = [cluster.submit(config(f"training {number}", 100_000, {}), "ada") for number in (1, 2)]
    cluster.wait_for(lambda: all(cluster.facts("TrialProgressed", f"{experiment}-1") for experiment in experiments))
    yield experiments
    for experiment in experiments:
        cluster.cli("exp", "kill", str(experiment))
        cluster.cli("exp", "wait", str(experiment), check=False)


def test_a_script_without_slots_runs_while_all_slots_are_taken(cluster: Shared, full: list[int], tmp_path: Path) -> None:
    training = list(full)
    assert cluster.json("pool", "ls")[0]["free"] == 0
    (tmp_path / "train.py").write_text(WATCHER)
    script = config("watcher", 1, {"slots_per_trial": 0}) | {"entrypoint": "train.py", "hyperparameters": {}}
    watcher = cluster.submit(script, "bob", tmp_path)
    cluster.cli("exp", "wait", str(watcher))
    assert cluster.json("exp", "describe", str(watcher))["state"] == "completed"
    [grant] = cluster.facts("AllocationGranted", f"{watcher}-1")
    assert (grant.reason.rule, [part.slot_ids for part in grant.slots]) == ("auxiliary.starts", [()])
    assert (seen := "sees '' with 1 thread") in cluster.log(f"{watcher}-1", seen, kind="trial")
    assert [cluster.facts("AllocationPreempted", f"{experiment}-1") for experiment in training] == [[], []]

    first = grant.slots[0].agent_id
    cluster.cli("agent", "disable", first, "--drain")
    keeper = cluster.submit(config("keeper", 100_000, {"slots_per_trial": 0}), "bob")
    full.append(keeper)
    cluster.wait_for(lambda: bool(cluster.facts("TrialProgressed", f"{keeper}-1")))
    cluster.cli("agent", "enable", first)
    [other] = cluster.facts("AllocationGranted", f"{keeper}-1")
    second = other.slots[0].agent_id
    assert first != second
    assert {agent["id"]: agent["auxiliary"] for agent in cluster.json("agent", "ls")} == {first: [], second: [f"{keeper}-1-1"]}
    rows = {row["experiment_id"]: row for row in cluster.json("job", "ls")["pools"][0]["rows"]}
    assert (rows[keeper]["slots"], rows[keeper]["auxiliary_trials"]) == (0, 1)
    assert [rows[experiment]["slots"] for experiment in training] == [1, 1]
    cluster.cli("exp", "pause", str(keeper))
    cluster.wait_for(lambda: bool(cluster.facts("AllocationReleased", f"{keeper}-1")))
    cluster.cli("exp", "resume", str(keeper))
    cluster.wait_for(lambda: len(cluster.facts("AllocationGranted", f"{keeper}-1")) == 2)
    cluster.cli("exp", "replay", str(keeper), "--verify")


def test_a_trial_goes_on_elsewhere_after_its_log_named_a_broken_machine(cluster: Shared, tmp_path: Path) -> None:
    description = config("broken", 1, {}) | {
        "entrypoint": "train.py",
        "hyperparameters": {"marker": str(tmp_path / "marker")},
        "log_policies": [{"pattern": ".*CUDA error.*ECC.*", "action": "exclude_agent"}],
    }
    experiment = cluster.submit(description, "bob", MODELS / "broken_machine")
    cluster.cli("exp", "wait", str(experiment))
    trial = f"{experiment}-1"
    [matched] = cluster.facts("LogMatched", trial)
    assert matched.line.endswith("CUDA error: uncorrectable ECC error encountered")
    agents = [data.slots[0].agent_id for data in cluster.facts("AllocationGranted", trial)]
    assert len(agents) == 2
    assert agents[0] == matched.agent_id != agents[1]
    assert cluster.json("trial", "describe", trial)["excluded_agents"] == [matched.agent_id]
