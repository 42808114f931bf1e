"""A search by a method of an installed package, on a real cluster that has it, and its record where it is not installed."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.events.search import ExperimentStarted
from tenuto.schemas.sentences import sentence_of
from tests.support.example_plugins import environment
from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = ROOT / "tests" / "e2e" / "models" / "counted"
WITHOUT = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
TRIALS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, example_plugins: Path) -> Iterator[LiveCluster]:
    cluster = LiveCluster(tmp_path_factory.mktemp("search-plugin") / "cluster", warm=False)
    cluster.environment |= environment(example_plugins)
    with cluster:
        yield cluster


def configured(directory: Path, **searcher: Any) -> Path:
    path = directory / "config.yaml"
    config = {
        "name": "median",
        "entrypoint": "train.py",
        "hyperparameters": {"rate": {"type": "double", "minval": 1, "maxval": 2}},
        "searcher": {"name": "median_stopping", "metric": "loss", "max_length": {"batches": 6}, "max_trials": TRIALS, **searcher},
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_search_of_a_package_from_its_start_to_its_verified_record(cluster: LiveCluster, tmp_path: Path) -> None:
    config = configured(tmp_path, settings={"grace": 2}, max_concurrent_trials=2)
    created = cluster.cli("exp", "create", config, MODEL, "--follow")
    number = cluster.json("exp", "ls")[0]["id"]
    view = cluster.json("exp", "describe", str(number))
    assert view["state"] == "completed", created.stdout
    assert view["config"]["searcher"]["settings"] == {"parts": 3, "grace": 2}
    events = [event for event in cluster.events() if event.correlation_id == str(number)]
    [started] = [event.data for event in events if isinstance(event.data, ExperimentStarted)]
    assert started.plugin is not None
    assert started.plugin.named == "tenuto-example-plugins 1.0"
    counts = Counter(event.type for event in events)
    assert counts["TrialRequested"] == counts["TrialStopped"] == counts["TrialFinished"] == TRIALS

    told = "".join(
        cluster.cli("trial", "describe", f"{number}-{trial}", "--json", more=WITHOUT).stdout for trial in range(1, TRIALS + 1)
    )
    requested = [sentence_of(event) for event in events if event.type == "TrialRequested"]
    assert requested[2].endswith("Its hyperparameters are point 3 of a lattice.")
    assert "worse than the median" in told
    assert "cannot put into words" not in told

    verified = cluster.cli("exp", "replay", str(number), "--verify").stdout
    assert "all as recorded" in verified
    refused = cluster.cli("exp", "replay", str(number), "--verify", more=WITHOUT, check=False)
    assert refused.returncode == 1, refused.stdout
    assert (
        f"The search of experiment {number} cannot be decided again here. The search method median_stopping of"
        " tenuto-example-plugins 1.0 cannot be used here: There is no median_stopping among tenuto.search_methods here"
    ) in " ".join(refused.stderr.split())


def test_wrong_settings_and_names_are_refused_before_anything_is_recorded(cluster: LiveCluster, tmp_path: Path) -> None:
    before = len(cluster.json("exp", "ls"))
    wrong = cluster.cli("exp", "create", configured(tmp_path, settings={"parts": 1}), MODEL, check=False)
    assert "searcher.settings.parts: must be a whole number, at least 2, at most 50 (found 1)" in wrong.stderr
    unknown = cluster.cli("exp", "create", configured(tmp_path, name="medianstopping", settings={}), MODEL, check=False)
    assert "searcher.name: there is no such search method; did you mean median_stopping?" in unknown.stderr
    assert len(cluster.json("exp", "ls")) == before


def test_its_plan_simulation_and_a_local_trial(cluster: LiveCluster, tmp_path: Path) -> None:
    config = configured(tmp_path)
    plan = cluster.cli("exp", "preview", config).stdout
    assert f"median_stopping: {TRIALS} trials" in plan
    elsewhere = cluster.cli("exp", "preview", config, more=WITHOUT).stdout
    assert "The plan of the search cannot be shown." in elsewhere
    assert "searcher.settings.grace" in cluster.cli("exp", "preview", config, "--all", more=WITHOUT).stdout
    compared = cluster.cli("sim", "search", config, "--methods", "random,sobol", "--seeds", "2").stdout
    assert "median_stopping" in compared
    with contextlib.chdir(tmp_path):  # where the record of the run is kept
        local = cluster.cli("exp", "create", config, MODEL, "--local")
    assert local.returncode == 0
