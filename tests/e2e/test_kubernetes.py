"""A trial on nodes that are pods: the first is deleted, as an eviction or a drain does it, and the trial goes on on the next.

Kubernetes is the tests' API server with a kubelet that runs containers as processes; cluster, agents and trials are real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.tasks import stop_task
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Order
from tests.support.kubernetes_kubelet import Kubelet
from tests.support.kubernetes_nodes import bench_of, pod_name
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"


async def test_a_trial_saves_when_its_pod_is_deleted_and_goes_on_in_another(tmp_path: Path) -> None:
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1), tmp_path / "gate"

    async def wait_for(what: Callable[[], bool]) -> None:
        await asyncio.to_thread(cluster.wait_for, what)

    def agents() -> list[str]:
        return [event.data.slots[0].agent_id for event in cluster.events() if event.type == "AllocationGranted"]

    def lost() -> list[Any]:
        """Another agent may be, for a while, where the machine has no time for it."""
        found = [event.data for event in cluster.events() if event.type == "AgentLost"]
        return [item for item in found if item.agent_id == "gpus-1"]

    def order(node_id: str) -> Order:
        token = cluster.json("agent", "token", "--pool", "gpus")["token"]
        environment = {"TENUTO_AGENT_ID": node_id, "TENUTO_JOIN_TOKEN": token, "TENUTO_CPU_SLOTS": "1"}
        return Order(node_id, NodeType(), environment)

    (tmp_path / "pods").mkdir()
    with cluster.listening("127.0.0.3"):
        async with bench_of(tmp_path) as bench:
            shared = str(tmp_path / "cluster/shared")
            kubelet = Kubelet(bench.api, tmp_path / "pods", TENUTO_SHARED_DIRECTORY=shared, TENUTO_HEARTBEAT_SECONDS="0.5")
            provisioner, running = bench.provisioner(), asyncio.create_task(kubelet.run())
            try:
                options = ("--set", f"hyperparameters.gate={gate}", "--set", "resources.pool=gpus")
                await asyncio.to_thread(cluster.cli, "exp", "create", MODEL / "config.yaml", MODEL, *options)
                await provisioner.start([await asyncio.to_thread(order, "gpus-1")])
                await wait_for(lambda: any(event.type == "CheckpointSaved" for event in cluster.events()))
                [node] = await provisioner.nodes()
                assert (node.node_id, node.phase, node.detail) == ("gpus-1", "running", "")
                assert "agent is ready" in await provisioner.logs(node, 100)

                await provisioner.stop(node)
                await wait_for(lambda: bool(lost()))
                assert [item.announced for item in lost()] == [True], kubelet.said()
                await wait_for(lambda: not bench.api.pods())
                await wait_for(lambda: any(event.type == "WorkersExited" for event in cluster.events()))
                exits = [event.data.outcome for event in cluster.events() if event.type == "WorkersExited"]
                assert exits == ["preempted"], kubelet.said()

                gate.touch()
                await provisioner.start([await asyncio.to_thread(order, "gpus-2")])
                await wait_for(lambda: any(event.type == "ExperimentCompleted" for event in cluster.events()))
                assert agents() == ["gpus-1", "gpus-2"]
                assert bench.names() == [pod_name("gpus-2")]
                assert "tenuto-join" not in kubelet.said()
            finally:
                await stop_task(running)
                await provisioner.close()
