"""An agent that runs workers by a plug-in of another package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_plugins import environment, example_plugins  # noqa: F401 - a fixture
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"
POOL = ("--set", "resources.pool=default")


def test_a_plug_in_runs_the_workers_of_an_agent(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False), tmp_path / "gate"
    cluster.environment |= environment(request.getfixturevalue("example_plugins")) | OUTLIVES_THE_TEST
    cluster.environment["TENUTO_RUNTIMES"] = "nice, docker"  # without TENUTO_DOCKER_URL
    with cluster:
        [agent] = cluster.json("agent", "ls")
        assert agent["runtimes"] == ["nice"]
        cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, "--set", f"hyperparameters.gate={gate}", *POOL)
        cluster.wait_for(lambda: any(event.type == "CheckpointSaved" for event in cluster.events()))
        assert {process.nice() for process in cluster.workers()} == {10}
        gate.touch()
        cluster.wait_for(lambda: any(event.type == "ExperimentCompleted" for event in cluster.events()))
        assert cluster.cli("exp", "replay", "1", "--verify").returncode == 0
