"""A pool whose nodes are started by a plug-in of another package, and what is said where the launcher has no such plug-in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.example_plugins import environment, example_plugins  # noqa: F401 - a fixture
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"


def test_a_plug_in_starts_the_nodes_of_a_pool_and_ends_them(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    installed, nodes, gate = request.getfixturevalue("example_plugins"), tmp_path / "nodes", tmp_path / "gate"
    plugins = shutil.copytree(installed, tmp_path / "plug-ins")
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment |= environment(plugins) | OUTLIVES_THE_TEST
    nodes.mkdir()
    gate.touch()
    sets = ("--set", f"directory={nodes}", "--set", f"shared_directory={tmp_path / 'cluster/shared'}", "--max", "1")

    def of(kind: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type == kind]

    with cluster:
        typo = cluster.cli("pool", "create", "here", "--provisioner", "locall", *sets, check=False)
        assert typo.returncode == 1
        assert "has no provisioner locall (it has: aws, gcp, kubernetes, local, slurm, ssh): name one of these" in typo.stderr
        assert cluster.json("pool", "check", "here", "--file", _file(tmp_path, "local", nodes))["ready"]
        unknown = cluster.cli("pool", "check", "here", "--file", _file(tmp_path, "locall", nodes), check=False)
        assert "The launcher has no provisioner locall" in unknown.stderr

        cluster.cli("pool", "create", "here", "--provisioner", "local", *sets, "--slots", "1", "--idle-seconds", "10")
        options = ("--set", "resources.pool=here", "--set", f"hyperparameters.gate={gate}")
        cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
        cluster.wait_for(lambda: bool(of("CheckpointSaved")))
        assert [part.agent_id for data in of("AllocationGranted") for part in data.slots] == ["here-1"]
        cluster.wait_for(lambda: bool(of("NodeEnded")))
        assert len(of("ExperimentCompleted")) == len(of("NodeRequested")) == len(of("NodeReleased")) == 1
        assert not cluster.json("node", "ls")

        # The package is uninstalled, and the launcher starts again.
        shutil.rmtree(plugins)
        cluster.kill("launcher")
        lacks = "The launcher has no provisioner local (it has: aws, gcp, kubernetes, slurm, ssh)"
        assert lacks in cluster.once(lambda: cluster.cli("pool", "check", "here", check=False).stderr, lambda said: lacks in said)
        assert lacks in cluster.once(lambda: cluster.cli("pool", "show", "here").stdout, lambda said: lacks in said)
        cluster.cli("pool", "change", "here", "--max", "2")  # which needs no plug-in
        cluster.cli("pool", "change", "here", "--provisioner", "static")
        assert cluster.cli("exp", "replay", "1", "--verify").returncode == 0


def _file(directory: Path, provisioner: str, nodes: Path) -> Path:
    file = directory / f"{provisioner}.yaml"
    file.write_text(f"provisioner: {provisioner}\nsettings:\n  directory: {nodes}\n")
    return file
