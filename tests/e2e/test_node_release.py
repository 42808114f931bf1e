"""`tenuto node release` on a pool of a real sshd: a node that drains ends after its trial, and one that goes now hands it on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import sshd as sshd_support
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.ssh_nodes import SshBench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(sshd_support.lack())]
MODEL = Path(__file__).parent / "models/leaving"
ADDRESS = "127.0.0.10"


def test_a_node_is_given_back_by_hand(tmp_path: Path) -> None:
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False), tmp_path / "gate"
    (tmp_path / "ssh").mkdir()
    (tmp_path / "sshd").mkdir()

    def of(kind: str, node: str = "") -> list[Any]:
        found = [event.data for event in cluster.events() if event.type == kind]
        return [data for data in found if not node or data.node_id == node]

    def nodes_of(experiment: int) -> list[str]:
        return [data.slots[0].agent_id for data in of("AllocationGranted") if data.experiment_id == experiment]

    def exits(trial: str) -> list[str]:
        return [data.outcome for data in of("WorkersExited") if data.trial_id == trial]

    with sshd_support.sshd(tmp_path / "sshd") as sshd:
        bench = SshBench(tmp_path / "ssh", sshd)
        given = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5", **COLD}
        bench.write_hosts(bench.host("h0", environment=given), bench.host("h1", environment=given))
        cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(bench.secrets)
        cluster.environment |= OUTLIVES_THE_TEST  # only a node that is given back ends a run
        names = {"hosts": "hosts.yaml", "key": "key", "known_hosts": "known_hosts", "python": sys.executable}
        settings = [word for name, value in names.items() for word in ("--set", f"{name}={value}")]
        options = ("--set", "resources.pool=far", "--set", f"hyperparameters.gate={gate}")
        with cluster.listening(ADDRESS):
            cluster.cli("pool", "create", "far", "--provisioner", "ssh", *settings, "--slots", "1", "--max", "2")
            unknown = cluster.cli("node", "release", "far-9", check=False)
            assert unknown.returncode
            assert "far-9" in unknown.stderr
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
            cluster.wait_for(lambda: bool(of("CheckpointSaved")))

            # Now: the trial saves, and goes on on the other machine, however long it would have taken.
            cluster.cli("node", "release", "far-1", "--now")
            cluster.wait_for(lambda: nodes_of(1) == ["far-1", "far-2"])
            assert exits("1-1") == ["preempted"]
            [released] = of("NodeReleased", "far-1")
            assert not released.drain
            cluster.wait_for(lambda: bool(of("NodeEnded", "far-1")))
            cluster.log("1-1", "goes on at step 2", kind="trial")

            # When its work is done: the trial stays, nothing new begins there, and more work gets another node.
            cluster.cli("node", "release", "far-2")
            assert of("NodeReleased", "far-2")[0].drain
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
            cluster.wait_for(lambda: nodes_of(2) == ["far-3"])
            [waiting] = [node for node in cluster.json("node", "ls") if node["id"] == "far-2"]
            assert waiting["phase"] == "released"
            assert not of("NodeEnded", "far-2"), "its trial runs"
            gate.touch()
            cluster.wait_for(lambda: bool(of("NodeEnded", "far-2")))
            assert (nodes_of(1), exits("1-1")) == (["far-1", "far-2"], ["preempted", "finished"])
            cluster.wait_for(lambda: len(of("ExperimentCompleted")) == 2)
            assert exits("2-1") == ["finished"]
            assert not of("NodeFailed")
            cluster.cli("exp", "replay", "1", "--verify")
            cluster.check_bus()
