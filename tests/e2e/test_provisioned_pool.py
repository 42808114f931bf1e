"""A pool whose nodes Tenuto starts itself, by a real sshd: used as a user does it, with the launcher killed in the middle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import sshd as sshd_support
from tests.support.live_cluster import LiveCluster
from tests.support.ssh_nodes import SshBench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(sshd_support.lack())]
MODEL = Path(__file__).parent / "models/leaving"


def test_nodes_come_when_work_waits_and_go_when_it_is_done(tmp_path: Path) -> None:
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1), tmp_path / "gate"
    (tmp_path / "ssh").mkdir()
    (tmp_path / "sshd").mkdir()

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    with sshd_support.sshd(tmp_path / "sshd") as sshd:
        bench = SshBench(tmp_path / "ssh", sshd)
        given = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5"}
        bench.write_hosts(bench.host("h0", environment=given), bench.host("h1", environment=given))
        cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(bench.secrets)
        names = {"hosts": "hosts.yaml", "key": "key", "known_hosts": "known_hosts", "python": sys.executable}
        settings = [word for name, value in names.items() for word in ("--set", f"{name}={value}")]
        with cluster.listening("127.0.0.4"):
            limits = ("--slots", "1", "--max", "2", "--idle-seconds", "10")
            cluster.cli("pool", "create", "far", "--provisioner", "ssh", *settings, *limits)
            checked = cluster.json("pool", "check", "far")
            assert checked["ready"], checked
            wrong = cluster.cli("pool", "change", "far", "--set", "ssh_password=x", check=False)
            assert "looks like a secret" in wrong.stderr
            assert not cluster.json("node", "ls")

            options = ("--set", "resources.pool=far", "--set", f"hyperparameters.gate={gate}")
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
            cluster.wait_for(lambda: bool(of("NodeRequested")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("NodeStarted")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("CheckpointSaved")))
            [node] = cluster.json("node", "ls")
            assert (node["id"], node["phase"], node["pool"]) == ("far-1", "joined", "far")
            assert "experiment 1" in node["reason"]
            assert [data.slots[0].agent_id for data in of("AllocationGranted")] == ["far-1"]
            assert "agent is ready" in cluster.cli("node", "logs", "far-1").stdout
            assert "far-1" in cluster.cli("node", "ls").stdout
            shown = cluster.cli("pool", "show", "far").stdout
            assert "provisioner ssh" in shown
            assert "nodes: 1, of which 0 are coming" in shown

            gate.touch()
            cluster.wait_for(lambda: bool(of("ExperimentCompleted")))
            cluster.wait_for(lambda: bool(of("NodeReleased")))
            cluster.kill("launcher")
            cluster.wait_for(lambda: bool(of("NodeEnded")))
            assert cluster.json("node", "ls") == []
            kinds = [
                type(data).__name__ for data in of("NodeRequested", "NodeStarted", "NodeReleased", "NodeFailed", "NodeEnded")
            ]
            assert kinds == ["NodeRequested", "NodeStarted", "NodeReleased", "NodeEnded"], "one node, whatever was killed"
            assert cluster.cli("agent", "run", "--name", "far-1", "--directory", tmp_path / "thief", check=False).returncode
            replayed = cluster.cli("exp", "replay", "1", "--verify")
            assert replayed.returncode == 0
