"""A pool whose nodes are pods, used as a user does it: a pod comes when work waits, and another when the first is deleted, as an
eviction or a drain does it; the trial goes on there, and at the end the pod is given back.

Kubernetes is the tests' API server with a kubelet that runs containers as processes; cluster, agents and trials are real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.tasks import stop_task
from tests.support.kubernetes_kubelet import Kubelet
from tests.support.kubernetes_nodes import IMAGE, Bench, bench_of
from tests.support.live_cluster import COLD, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"


async def test_a_trial_goes_on_in_another_pod_when_its_own_is_deleted(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(tmp_path)
    (tmp_path / "pods").mkdir()
    async with bench_of(tmp_path) as bench:
        shared = str(tmp_path / "cluster/shared")
        quick = {"TENUTO_HEARTBEAT_SECONDS": "0.5", **COLD}
        kubelet = Kubelet(bench.api, tmp_path / "pods", TENUTO_SHARED_DIRECTORY=shared, **quick)
        running = asyncio.create_task(kubelet.run())
        try:
            with cluster.listening("127.0.0.3"):
                await _use(cluster, bench, tmp_path / "gate")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{kubelet.said()}") from error
        finally:
            await stop_task(running)
        assert "tenuto-join" not in kubelet.said()


async def _use(cluster: LiveCluster, bench: Bench, gate: Path) -> None:
    async def cli(*words: str | Path) -> str:
        return (await asyncio.to_thread(cluster.cli, *words)).stdout

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    def of_agent(kind: str) -> list[Any]:
        return [data for data in of(kind) if data.agent_id == "gpus-1"]

    async def wait_for(what: Callable[[], object]) -> None:
        await asyncio.to_thread(cluster.wait_for, lambda: bool(what()))

    settings = ("--set", f"image={IMAGE}", "--set", "kubeconfig=kubeconfig")
    await cli("pool", "create", "gpus", "--provisioner", "kubernetes", *settings, "--max", "2", "--idle-seconds", "10")
    checked = await cli("pool", "check", "gpus")
    assert "Kubernetes v1.33.0-tests" in checked
    assert "problem" not in checked
    assert bench.api.pods() == []

    options = ("--set", f"hyperparameters.gate={gate}", "--set", "resources.pool=gpus")
    await cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
    await wait_for(partial(of, "CheckpointSaved"))
    assert "agent is ready" in await cli("node", "logs", "gpus-1")
    [pod] = bench.api.pods()
    await bench.delete(pod["metadata"]["name"])
    await wait_for(partial(of_agent, "AgentLost"))
    assert [data.announced for data in of_agent("AgentLost")] == [True]
    await wait_for(partial(of, "WorkersExited"))
    assert of("WorkersExited")[0].outcome == "preempted", "it saved in time"

    assert bench.api.watches > 0, "pods are watched, not only looked at from time to time"
    gate.touch()
    await wait_for(partial(of, "ExperimentCompleted"))
    assert [data.slots[0].agent_id for data in of("AllocationGranted")] == ["gpus-1", "gpus-2"]
    await wait_for(lambda: len(of("NodeEnded")) == len(of("NodeRequested")))
    assert [data.node_id for data in of("NodeRequested")] == ["gpus-1", "gpus-2"]
    assert [pod for pod in bench.api.pods() if pod["status"]["phase"] in ("Pending", "Running")] == []
