"""Three hosts with no common directory, in network namespaces: they join by a token, a gang trains over all of them, one host is
cut off and comes back, and another one dies. They share the network with the cluster and an S3 store, and nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.joined_node import JoinedNode, stopped_at_end
from tests.support.live_cluster import LiveCluster, Node
from tests.support.namespaces import Hosts, hosts_at_a_switch, inside, reached_at
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, STORE, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/three_hosts"
QUICK = {"TENUTO_HEARTBEAT_SECONDS": "0.5"}
"""Leases are as long as usual: an agent that is lost to a busy machine would be a fault."""


def closed(directories: list[Path]) -> tuple[str, ...]:
    """Prefix of a command that finds nothing in these directories."""
    mounts = "; ".join(f"mount -t tmpfs tmpfs {shlex.quote(str(path))}" for path in directories)
    return "unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts}; exec "$@"', "sh"


def machines(hosts: Hosts, tmp_path: Path) -> list[JoinedNode]:
    places = [tmp_path / f"host{number}" for number, _ in enumerate(hosts.names, start=1)]
    for place in places:
        place.mkdir()
    found = []
    for name, place in zip(hosts.names, places, strict=True):
        others = [tmp_path / "cluster", *(other for other in places if other != place)]
        found.append(JoinedNode(place / "agent", place.name, inside=(*inside(name), *closed(others)), **QUICK))
    return found


def count(cluster: LiveCluster, kind: str) -> int:
    return sum(event.type == kind for event in cluster.events())


def named(cluster: LiveCluster, kind: str) -> list[str]:
    return [event.data.agent_id for event in cluster.events() if event.type == kind]  # type: ignore[attr-defined]


def lost(cluster: LiveCluster) -> list[str]:
    return named(cluster, "AgentLost")


def test_a_gang_over_three_hosts_that_are_cut_off_and_die(tmp_path: Path, s3_server: S3Server) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment |= QUICK
    with hosts_at_a_switch(3) as hosts, reached_at(hosts.here, s3_server.port), cluster.listening(hosts.here):
        place = ["--bucket", s3_server.bucket, "--endpoint", f"http://{hosts.here}:{s3_server.port}", "--no-test"]
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        cluster.cli("store", "create", STORE, "--type", "s3", *place, more=keys)
        token = cluster.json("agent", "token", "--pool", "far", "--uses", "3")["token"]
        nodes = machines(hosts, tmp_path)
        with stopped_at_end(*nodes):
            for node in nodes:
                node.start(token)
            cluster.wait_for(lambda: {"host1", "host2", "host3"} <= {*named(cluster, "AgentJoined")})
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL)
            cluster.wait_for(lambda: count(cluster, "CheckpointSaved") >= 1)

            hosts.cut(hosts.names[1])
            cluster.wait_for(lambda: lost(cluster) == ["host2"])
            cluster.wait_for(lambda: count(cluster, "AllocationReleased") >= 1)
            hosts.mend(hosts.names[1])
            cluster.wait_for(lambda: count(cluster, "CheckpointSaved") >= 2)

            agent = nodes[2].agent
            assert agent is not None
            Node(agent).die()
            cluster.wait_for(lambda: lost(cluster) == ["host2", "host3"])
            nodes[2].start()  # the machine is on again, and has no token any more
            cluster.wait_for(lambda: count(cluster, "ExperimentCompleted") >= 1)
            assert lost(cluster) == ["host2", "host3"]

        events = cluster.events()
        granted = [[part.agent_id for part in event.data.slots] for event in events if event.type == "AllocationGranted"]
        assert [sorted(names) for names in granted] == [["host1", "host2", "host3"]] * 3
        assert [event.data.outcome for event in events if event.type == "WorkersExited"] == ["lost", "lost", "finished"]
        said = cluster.log(
            "1-1", *(f"rank {rank} of 3 begins at {step}" for rank in range(3) for step in (0, 10, 20)), kind="trial"
        )
        assert said.count("begins at") == 9
        for node in nodes:
            kept = [path for path in node.directory.rglob("*") if path.is_file()]
            assert not [path for path in kept if SECRET_KEY.encode() in path.read_bytes()], "credentials stay in memory"
        assert not list((tmp_path / "cluster/shared/checkpoints").glob("*/*"))
        cluster.check_bus()
