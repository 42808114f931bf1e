"""A pool whose nodes are spot instances of EC2, used as a user does it: an instance comes when work waits; EC2 gives the two
minutes' notice of its end, so the trial saves and goes on on one that is no spot instance, as there is no capacity for another;
at the end all are given back.

EC2 is moto's, and an instance a process that runs the boot script that it was given; cluster, agents and trials are real."""

from __future__ import annotations

import asyncio
import getpass
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.ec2 import CREDENTIALS, REGION, Ec2, linux_image, running
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.metadata_server import MetadataServer, metadata_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = Path(__file__).parent / "models/leaving"
MARKET = "InstanceMarketOptions.MarketType"
POOL = """
provisioner: aws
settings: {%s}
node_types:
  - {name: spot, device: cpu, cost_per_hour: 1, settings: {spot: "true"}}
  - {name: steady, device: cpu, cost_per_hour: 3}
nodes_max: 2
idle_seconds: 10
"""


async def test_a_trial_goes_on_on_demand_when_spot_takes_its_instance_and_has_no_other(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(tmp_path)
    (tmp_path / "aws").write_text(CREDENTIALS)
    async with metadata_server() as metadata:
        told = {
            "TENUTO_SHARED_DIRECTORY": str(tmp_path / "cluster/shared"), "TENUTO_HEARTBEAT_SECONDS": "0.5",
            "TENUTO_END_NOTICE_URL": metadata.url, **COLD,
        }  # fmt: skip
        async with running(tmp_path / "machines", **told) as ec2:
            try:
                with cluster.listening("127.0.0.4"):
                    await _use(cluster, ec2, metadata, tmp_path)
            except AssertionError as error:
                said = "\n".join(machine.console() for machine in ec2.running.values())
                raise AssertionError(f"{error}\n{said}") from error
            for machine in ec2.running.values():
                assert machine.is_off, "each turned itself off when its agent had left"
                assert "tenuto-join" not in machine.console()
            left = [path for path in (tmp_path / "machines").rglob("*") if path.is_file() and b"tenuto-join" in path.read_bytes()]
            assert left == []


async def _use(cluster: LiveCluster, ec2: Ec2, metadata: MetadataServer, directory: Path) -> None:
    async def cli(*words: str | Path) -> str:
        return (await asyncio.to_thread(cluster.cli, *words)).stdout

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    def of_agent(kind: str) -> list[Any]:
        return [data for data in of(kind) if data.agent_id == "gpus-1"]

    async def wait_for(what: Callable[[], object]) -> None:
        await asyncio.to_thread(cluster.wait_for, lambda: bool(what()))

    image = await asyncio.to_thread(linux_image)
    given = {
        "region": REGION, "endpoint_url": ec2.url, "credentials_file": "aws", "instance_type": "m5.large", "image": image,
        "python": sys.executable, "user": getpass.getuser(), "worker_user": getpass.getuser(),
    }  # fmt: skip
    (directory / "pool.yaml").write_text(POOL % ", ".join(f'{name}: "{value}"' for name, value in given.items()))
    await cli("pool", "create", "gpus", "--file", directory / "pool.yaml")
    checked = await cli("pool", "check", "gpus")
    assert "type m5.large: 2 processors, no GPU" in checked
    assert "problem" not in checked
    assert ec2.requests == {}
    assert re.search(r"gpus +aws ", await cli("pool", "ls")), "also before the scheduler knows of it"
    assert "nodes come when work waits" in await cli("job", "ls", "--pool", "gpus")

    gate = directory / "gate"
    options = ("--set", f"hyperparameters.gate={gate}", "--set", "resources.pool=gpus")
    created = await asyncio.to_thread(cluster.cli, "exp", "create", MODEL / "config.yaml", MODEL, *options)
    assert "Nodes of pool gpus come when work waits" in created.stderr
    await wait_for(partial(of, "CheckpointSaved"))
    assert "agent is ready" in await cli("node", "logs", "gpus-1")
    assert "gpus-1" in await cli("node", "ls")
    assert "process" in await cli("agent", "ls"), "how it runs workers"
    assert [asked.get(MARKET) for asked in ec2.requests.values()] == ["spot"]
    ec2.full.add("spot")
    at = (datetime.now(UTC) + timedelta(seconds=120)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await metadata.put("spot/instance-action", f'{{"action": "terminate", "time": "{at}"}}')
    await wait_for(partial(of_agent, "AgentLost"))
    metadata.values.pop("spot/instance-action")  # the other instance is another's
    assert [data.announced for data in of_agent("AgentLost")] == [True]
    await wait_for(partial(of, "WorkersExited"))
    assert of("WorkersExited")[0].outcome == "preempted", "it saved in time"

    gate.touch()
    await wait_for(partial(of, "ExperimentCompleted"))
    # A machine without time for its agents loses further ones.
    granted = [data.slots[0].agent_id for data in of("AllocationGranted")]
    assert granted[0] == "gpus-1"
    failed = [data for data in of("NodeFailed") if data.failure == "capacity"]
    assert failed, "there was no capacity for another spot instance"
    assert "capacity" in failed[0].message
    requested = {data.node_id: data.node_type for data in of("NodeRequested")}
    assert (requested["gpus-1"], requested[granted[-1]]) == ("spot", "steady")
    assert [asked.get(MARKET) for asked in ec2.requests.values()][1:] == [None] * (len(ec2.requests) - 1)
    await wait_for(lambda: len(of("NodeEnded")) == len(of("NodeRequested")))
    await wait_for(lambda: ec2.live() == [])
    assert "No provisioner has a node now" in await cli("node", "ls")
    assert "gpus-" not in await cli("agent", "ls"), "agents of nodes that have ended are only on record"
    notices = [data.reason.numbers["notice"] for data in of("NodeReleased") if data.node_id == "gpus-1"]
    assert notices == [f"spot instance action terminate at {at.replace('Z', '+00:00')}"]
