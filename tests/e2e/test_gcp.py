"""A pool whose nodes are instances of Compute Engine, used as a user does it: a spot instance comes when work waits; it is
preempted, so its trial saves and goes on, on one that is no spot instance, as there is no room for another; at the end all are
given back.

Compute Engine is the tests' stand-in, whose machines run startup scripts as processes; cluster, agents and trials are real."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.compute_engine import ComputeEngine
from tests.support.compute_engine_rules import ZONES
from tests.support.gcp_bench import KEY, Machines, settings_of
from tests.support.live_cluster import COLD, LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"
POOL = """
provisioner: gcp
settings: {%s}
node_types:
  - {name: spot, device: cpu, cost_per_hour: 1, settings: {spot: "true", zones: "%s"}}
  - {name: steady, device: cpu, cost_per_hour: 3, settings: {zones: "%s"}}
nodes_max: 2
idle_seconds: 10
"""


async def test_a_trial_goes_on_elsewhere_when_its_instance_is_preempted(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(tmp_path)
    engine = ComputeEngine(room={ZONES[0]: 1})
    await engine.start()
    shared = str(tmp_path / "cluster/shared")
    machines = Machines(engine, tmp_path / "m", TENUTO_SHARED_DIRECTORY=shared, TENUTO_HEARTBEAT_SECONDS="0.5", **COLD)
    (tmp_path / KEY).write_text(engine.key_file())
    try:
        with cluster.listening("127.0.0.4"):
            await _use(cluster, engine, machines, tmp_path)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machines.said()}") from error
    finally:
        await machines.close()
        await engine.stop()
    assert "tenuto-join" not in machines.said()


async def _use(cluster: LiveCluster, engine: ComputeEngine, machines: Machines, directory: Path) -> None:
    async def cli(*words: str | Path) -> str:
        return (await asyncio.to_thread(cluster.cli, *words)).stdout

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    async def wait_for(what: Callable[[], object]) -> None:
        await asyncio.to_thread(cluster.wait_for, lambda: bool(what()))

    # The machine's own account has what the agent needs; `runuser` of the stand-in changes to no other.
    settings = settings_of(engine, zones="", python=sys.executable, user="nobody")
    text = POOL % (", ".join(f'{key}: "{value}"' for key, value in settings.items()), ZONES[0], ZONES[1])
    (directory / "pool.yaml").write_text(text)
    await cli("pool", "create", "gpus", "--file", directory / "pool.yaml")
    checked = await cli("pool", "check", "gpus")
    assert "machine type n1-standard-4" in checked
    assert "problem" not in checked
    assert engine.names() == []

    gate = directory / "gate"
    options = ("--set", f"hyperparameters.gate={gate}", "--set", "resources.pool=gpus")
    await cli("exp", "create", MODEL / "config.yaml", MODEL, *options)
    await wait_for(partial(of, "CheckpointSaved"))
    assert "agent is ready" in await cli("node", "logs", "gpus-1")
    [spot] = engine.names(ZONES[0])
    engine.room[ZONES[0]] = 0
    await machines.preempt(spot)
    await wait_for(lambda: [data for data in of("AgentLost") if data.agent_id == "gpus-1"])
    [lost] = [data for data in of("AgentLost") if data.agent_id == "gpus-1"]
    assert lost.announced
    await wait_for(lambda: [data for data in of("NodeReleased") if data.node_id == "gpus-1"])
    [released] = [data for data in of("NodeReleased") if data.node_id == "gpus-1"]
    assert released.reason.numbers["notice"] == "the instance was preempted"
    await wait_for(partial(of, "WorkersExited"))
    assert of("WorkersExited")[0].outcome == "preempted", "it saved in time"
    gate.touch()
    await wait_for(partial(of, "ExperimentCompleted"))
    granted = [data.slots[0].agent_id for data in of("AllocationGranted")]
    assert granted[0] == "gpus-1"
    failed = [data for data in of("NodeFailed") if data.failure == "capacity"]
    assert failed, "there was no room for another spot instance"
    requested = {data.node_id: data.node_type for data in of("NodeRequested")}
    assert (requested["gpus-1"], requested[granted[-1]]) == ("spot", "steady")
    await wait_for(lambda: len(of("NodeEnded")) == len(of("NodeRequested")))
    await wait_for(lambda: engine.names() == [])
