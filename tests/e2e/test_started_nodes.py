"""Real agents on nodes that provisioners start, as a job of a real Slurm and by a real sshd: they join by tokens of their own,
train, and leave when their nodes are given back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, RealNode
from tenuto.services.launcher.adapters.provisioners.registry import open_provisioner
from tests.support import slurm as slurm_support
from tests.support import sshd as sshd_support
from tests.support.live_cluster import LiveCluster
from tests.support.provisioner_benches import until
from tests.support.slurm import Slurm
from tests.support.ssh_nodes import SshBench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.real_part(slurm_support.lack()),
    pytest.mark.real_part(sshd_support.lack()),
]
FAR = Path(__file__).parent / "models/far"


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
    return node


async def _end(made: Provisioner, node: RealNode) -> tuple[RealNode, str]:
    await made.stop(node)
    [ended] = await until(made, "ended")
    said = await made.logs(ended, 1_000)
    await made.close()
    return ended, said


def test_agents_of_started_nodes_join_train_and_leave(tmp_path: Path, slurm: Slurm) -> None:
    python = str(Path(psutil.Process().cmdline()[0]).absolute())
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1)
    shared = {"TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5"}
    (tmp_path / "ssh").mkdir()
    (tmp_path / "sshd").mkdir()
    settings = {"directory": str(tmp_path / "nodes"), "python": python, "time": "20"}

    def of(kind: str, agent: str) -> list[str]:
        return [event.data.reason for event in cluster.events() if event.type == kind and event.data.agent_id == agent]

    with sshd_support.sshd(tmp_path / "sshd") as sshd, cluster.listening("127.0.0.2"):
        bench = SshBench(tmp_path / "ssh", sshd)
        jobs = open_provisioner("c", "far", Provisioning(provisioner="slurm", settings=settings))
        hosts = bench.with_settings({"python": python}, pool="far")
        token = cluster.json("agent", "token", "--pool", "far", "--uses", "2")["token"]
        for made, name in ((jobs, "far-1"), (hosts, "far-2")):
            node = asyncio.run(_start(made, name, token, **shared))
            cluster.wait_for(lambda name=name: any(row["id"] == name for row in cluster.json("agent", "ls")))
            secrets = [path for path in tmp_path.glob("n*/**/*") if path.is_file() and token in path.read_text(errors="replace")]
            assert secrets == []
            before = sum(event.type == "ExperimentCompleted" for event in cluster.events())
            cluster.cli("exp", "create", FAR / "config.yaml", FAR, "--set", "checkpoint_storage.store=shared")
            cluster.wait_for(
                lambda before=before: sum(event.type == "ExperimentCompleted" for event in cluster.events()) == before + 1
            )
            granted = [event.data.slots[0].agent_id for event in cluster.events() if event.type == "AllocationGranted"]
            assert granted[-1] == name
            ended, said = asyncio.run(_end(made, node))
            cluster.wait_for(lambda name=name: bool(of("AgentLost", name)))
            assert of("AgentLost", name) == ["its time was over"], said
            assert "the agent's time is over" in said
            assert token not in said + ended.detail
            assert psutil.Process().children(recursive=True) is not None
