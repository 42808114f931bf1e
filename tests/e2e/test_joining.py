"""Machines that join by a token over TLS, as their user does it: they train, start again without the token, and are revoked."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from tenuto.kernel.exit_codes import EXIT_REVOKED
from tests.support.joined_node import JoinedNode, stopped_at_end
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FAR = Path(__file__).parent / "models/far"


def joined(cluster: LiveCluster, name: str) -> bool:
    return any(event.type == "AgentJoined" and event.data.agent_id == name for event in cluster.events())


def test_a_machine_joins_starts_again_without_the_token_and_is_revoked(tmp_path: Path) -> None:
    """Long, because it is one story on one cluster: each step begins where the last one ended."""
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment |= OUTLIVES_THE_TEST  # m1 starts again in the middle, however long that takes
    shared = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared")}
    first, second = (JoinedNode(tmp_path / name, name, **shared) for name in ("m1", "m2"))
    with cluster.listening("127.0.0.2"), stopped_at_end(first, second):
        port = cluster.state()["url"].rpartition(":")[2]
        assert f"Other machines reach it at https://127.0.0.2:{port}." in cluster.told_at_start, "the URL is this machine's own"
        made = cluster.json("agent", "token", "--pool", "far", "--uses", "2")
        agent = first.start(made["token"])
        cluster.wait_for(lambda: joined(cluster, "m1"))
        kept = first.directory / "joined.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        secret = made["token"]
        assert secret not in " ".join(agent.cmdline())
        assert secret not in str(agent.environ())
        cluster.cli("exp", "create", FAR / "config.yaml", FAR, "--set", "checkpoint_storage.store=shared")
        cluster.wait_for(lambda: sum(event.type == "CheckpointSaved" for event in cluster.events()) == 2)

        agent.send_signal(signal.SIGHUP)  # its workers go on
        assert first.left_with() == 0
        first.start()
        cluster.wait_for(lambda: first.said().count("agent is ready") == 2)
        second.start(secret)
        cluster.wait_for(lambda: joined(cluster, "m2"))
        assert [row["uses"] for row in cluster.json("agent", "tokens")] == [2]

        cluster.cli("agent", "revoke", "m1")
        assert first.left_with() == EXIT_REVOKED
        assert "has revoked agent m1, so what ran here was ended: to come back, join with a new token" in first.said()
        cluster.wait_for(lambda: any(event.type == "ExperimentCompleted" for event in cluster.events()))
        assert "goes on at step 2" in cluster.log("1-1", "goes on at step 2", kind="trial")
        events = cluster.events()
        granted = [event.data.slots[0].agent_id for event in events if event.type == "AllocationGranted"]
        assert granted == ["m1", "m2"]
        [exited] = [event.data for event in events if event.type == "WorkersExited" and event.data.outcome == "lost"]
        assert exited.error == "agent m1 was lost: it was revoked"
        assert [event.actor for event in events if event.type == "AgentEnrolled"] == ["agent:m1", "agent:m2"]

        first.start()
        assert first.left_with() == EXIT_REVOKED
        first.start(secret)
        assert first.left_with() == 1
        assert f"Join token {made['id']} is used up, by 2 agents" in first.said()
        first.start(cluster.json("agent", "token", "--pool", "far")["token"])
        cluster.wait_for(lambda: [row["state"] for row in cluster.json("agent", "ls") if row["id"] == "m1"] == ["joined"])

        first.stop()
        stolen = json.loads(kept.read_text())
        kept.write_text(json.dumps(stolen | {"pool": "default"}))
        first.start()
        refusal = "Agent m1 joined for pool far and may not offer slots to pool default"
        cluster.wait_for(lambda: refusal in first.said())
        assert {event.data.pool for event in cluster.events() if event.type == "AgentJoined" and event.data.agent_id == "m1"} == {
            "far"
        }

        cluster.cli("agent", "revoke", os.uname().nodename)  # the cluster's own agent
        cluster.wait_for(lambda: cluster.state()["processes"]["agent"]["state"] == "stopped")
        assert "has revoked agent" in cluster.state()["processes"]["agent"]["message"]
