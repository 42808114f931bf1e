"""Real agents on nodes that provisioners start, as a job of a real Slurm and by a real sshd: they join by a token,
train, and leave when their nodes are given back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, RealNode, open_provisioner
from tests.support import slurm as slurm_support
from tests.support import sshd as sshd_support
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.provisioner_benches import until
from tests.support.slurm import Slurm
from tests.support.ssh_nodes import SshBench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.real_part(slurm_support.lack()),
    pytest.mark.real_part(sshd_support.lack()),
]
MODEL = Path(__file__).parent / "models/leaving"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    with slurm_support.slurm() as found:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, found.environment[name])
        yield found


async def _start(made: Provisioner, node_id: str, token: str, **more: str) -> RealNode:
    environment = {"TENUTO_AGENT_ID": node_id, "TENUTO_JOIN_TOKEN": token, "TENUTO_CPU_SLOTS": "1", **more}
    await made.start([Order(node_id, NodeType(), environment)])
    [node] = await until(made, "running")
    await made.close()
    return node


async def _end(made: Provisioner, node: RealNode) -> tuple[RealNode, str]:
    await made.stop(node)
    [ended] = await until(made, "ended")
    said = await made.logs(ended, 1_000)
    await made.close()
    return ended, said


def test_agents_of_started_nodes_join_train_and_leave(tmp_path: Path, slurm: Slurm) -> None:
    python, gate = sys.executable, tmp_path / "gate"
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment |= OUTLIVES_THE_TEST  # agents say themselves that their time is over
    shared = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5", **COLD}
    (tmp_path / "ssh").mkdir()
    (tmp_path / "sshd").mkdir()
    settings = {"directory": str(tmp_path / "nodes"), "python": python, "time": "20"}

    def of(kind: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type == kind]

    def lost() -> list[tuple[str, bool]]:
        return [(data.agent_id, data.announced) for data in of("AgentLost")]

    with sshd_support.sshd(tmp_path / "sshd") as sshd, cluster.listening("127.0.0.2"):
        bench = SshBench(tmp_path / "ssh", sshd)
        jobs = open_provisioner("c", "far", Provisioning(provisioner="slurm", settings=settings))
        hosts = bench.with_settings({"python": python}, pool="far")
        token = cluster.json("agent", "token", "--pool", "far", "--uses", "2")["token"]
        job = asyncio.run(_start(jobs, "far-1", token, **shared))
        options = ("--set", "resources.pool=far", "--set", f"hyperparameters.gate={gate}")
        cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
        cluster.wait_for(lambda: bool(of("CheckpointSaved")))
        host = asyncio.run(_start(hosts, "far-2", token, **shared))
        cluster.wait_for(lambda: any(data.agent_id == "far-2" for data in of("AgentJoined")))
        assert not [path for path in tmp_path.rglob("agent.env*") if path.is_file()], "the job has taken its token away"

        # The job is given back: its trial saves, and goes on on the host.
        ended, said = asyncio.run(_end(jobs, job))
        cluster.wait_for(lambda: len(of("AllocationGranted")) == 2)
        assert [data.slots[0].agent_id for data in of("AllocationGranted")] == ["far-1", "far-2"], said
        assert of("WorkersExited")[0].outcome == "preempted", said
        cluster.wait_for(lambda: lost() == [("far-1", True)])
        assert token not in said + ended.detail
        gate.touch()
        cluster.wait_for(lambda: bool(of("ExperimentCompleted")))

        ended, said = asyncio.run(_end(hosts, host))
        assert "the agent's time is over" in said
        assert ended.detail == ""
        cluster.wait_for(lambda: lost() == [("far-1", True), ("far-2", True)])
        assert token not in said
