"""Searches with real trials: copies of a population, refused hyperparameters, metrics that are not numbers, a front."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MODEL = ROOT / "tests" / "e2e" / "models" / "searched"


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = LiveCluster(directory / "cluster")

    def run(self, searcher: dict[str, Any], seed: int = 5, **space: Any) -> tuple[int, list[Any]]:
        """The experiment, and its trials."""
        config = {
            "name": "searched",
            "entrypoint": "model_def:SearchedTrial",
            "hyperparameters": {"heads": 1, "diverge": False, "learning_rate": 0.01} | space,
            "searcher": {"metric": "loss", "max_length": {"batches": 8}, **searcher},
            "log_period": {"batches": 1},
            "reproducibility": {"experiment_seed": seed},
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        experiment = int(self.cluster.json("exp", "create", path, MODEL)["id"])
        self.cluster.cli("exp", "wait", str(experiment))
        return experiment, self.cluster.json("exp", "describe", str(experiment))["trial_list"]

    def points(self, experiment: int, trial: str, count: int) -> list[Any]:
        """Training metrics of a trial, once there are `count` of them."""
        return self.cluster.once(
            lambda: list(self.cluster.json("exp", "metrics", str(experiment), "--trial", trial)),
            lambda found: len(found) >= count,
        )

    def why(self, trial: str) -> list[Any]:
        return [{**decision["data"], "sentence": decision["sentence"]} for decision in self.cluster.json("exp", "why", trial)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("searches"))
    bench.cluster.up()
    try:
        yield bench
        # All that was decided here is a function of the record.
        assert bench.cluster.json("exp", "replay", "1", "--verify")["ok"]
        bench.cluster.check_bus()
    finally:
        bench.cluster.down()


RATE = {"type": "log", "minval": -4, "maxval": -1}


def test_a_copy_trains_with_its_own_learning_rate_from_its_parents_weights(bench: Bench) -> None:
    pbt = {"name": "pbt", "population_size": 3, "generations": 2, "truncate_fraction": 0.34, "max_concurrent_trials": 2}
    experiment, trials = bench.run(pbt, learning_rate=RATE)
    copies = []
    for trial in trials:
        begun = bench.why(trial["id"])[0]
        if begun.get("source_checkpoint_id"):
            copies.append(trial)
            parent = next(one for one in trials if one["id"] == begun["parent_trial_id"])
            assert begun["source_checkpoint_id"].startswith(f"{parent['id']}-")
            assert trial["hyperparameters"]["learning_rate"] != parent["hyperparameters"]["learning_rate"]
            assert "It is a copy of trial" in begun["sentence"]
        first = 5 if trial in copies else 1  # the others are its parent's
        points = bench.points(experiment, trial["id"], trial["batches"] + 1 - first)
        assert [point["batches"] for point in points] == list(range(first, trial["batches"] + 1))
        for point in points:
            assert math.isclose(point["metrics"]["rate"], trial["hyperparameters"]["learning_rate"], rel_tol=1e-12), trial["id"]
    assert copies, "nobody was copied"
    stopped = [trial for trial in trials if trial["state"] == "early_stopped"]
    assert stopped
    assert bench.why(stopped[0]["id"])[-1]["reason"]["rule"] == "pbt.truncate"


def test_refused_hyperparameters_cost_no_trial_and_nan_is_the_worst(bench: Bench) -> None:
    asha = {"name": "asha", "max_trials": 8, "max_concurrent_trials": 2, "divisor": 2, "max_rungs": 2}
    _, trials = bench.run(asha, seed=8, heads={"type": "categorical", "vals": [1, 2, 3]}, diverge=True, learning_rate=RATE)
    refused = [trial for trial in trials if trial["hyperparameters"]["heads"] == 3]
    compared = [trial for trial in trials if trial not in refused]
    assert refused
    assert len(compared) == 8, "each refused one is replaced"
    for trial in refused:
        assert (trial["state"], trial["failures"], trial["batches"]) == ("failed", 1, 0)
        assert bench.why(trial["id"])[-1]["sentence"] == (
            "The model code refused its hyperparameters (model_def.py:22: heads must divide width): it counts for nothing,"
            " and another trial takes its place."
        )
    lost = [trial for trial in compared if trial["hyperparameters"]["learning_rate"] >= 0.05]
    assert lost
    for trial in lost:
        assert (trial["state"], trial["batches"]) == ("early_stopped", 4)
        decision = bench.why(trial["id"])[-1]
        assert decision["reason"]["rule"] == "asha.worst"
        assert "loss is missing or not finite at rung 0 (4 batches): it counts as worst" in decision["sentence"]
    rules = {decision["reason"]["rule"] for trial in compared for decision in bench.why(trial["id"])}
    assert {"asha.new_trial", "asha.wait", "asha.promotion", "full_length"} <= rules


def test_a_search_with_two_metrics_shows_its_front(bench: Bench) -> None:
    nsga2 = {
        "name": "nsga2",
        "max_trials": 5,
        "max_concurrent_trials": 2,
        "startup_trials": 3,
        "objectives": [{"metric": "size"}],
    }
    experiment, trials = bench.run(nsga2, learning_rate=RATE)
    front = bench.cluster.json("exp", "pareto", str(experiment))
    assert front["compared"] == len(trials) == 5
    found = [(one["values"]["loss"], one["values"]["size"]) for one in front["front"]]
    assert found == sorted(found)
    assert [size for _, size in found] == sorted((size for _, size in found), reverse=True), "what costs loss gains size"
    assert "beaten by no other one in all metrics" in bench.cluster.cli("exp", "pareto", str(experiment)).stdout


def test_a_search_begins_with_the_weights_of_a_checkpoint(bench: Bench) -> None:
    first, [trained] = bench.run({"name": "single"}, learning_rate=0.05)
    checkpoint = bench.cluster.json("exp", "describe", str(first))["best_checkpoint_id"]
    warm = {"name": "random", "max_trials": 2, "max_length": {"batches": 4}, "source_checkpoint": checkpoint}
    experiment, trials = bench.run(warm, learning_rate=0.001)

    def losses(of: int, trial: str) -> list[float]:
        points = bench.points(of, trial, 4)
        assert points[0]["batches"] == 1
        return [point["metrics"]["loss"] for point in points]

    cold = losses(first, trained["id"])
    for trial in trials:
        assert (trial["state"], trial["batches"]) == ("completed", 4)
        own = losses(experiment, trial["id"])
        assert len(own) == 4
        assert own[0] < 0.7 * cold[0], "it goes on from trained weights"
    told = f"begins with the weights of checkpoint {checkpoint}"
    assert told in bench.cluster.log(str(experiment), told)
    config = bench.cluster.json("exp", "describe", str(experiment))["config"]
    assert config["searcher"]["source_checkpoint"]["location"], "the record says where it was"
    with pytest.raises(AssertionError, match=r"searcher.source_checkpoint: this checkpoint is not known"):
        bench.run(warm | {"source_checkpoint": "9-9-9-9"})
