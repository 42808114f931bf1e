"""The Docker daemon is killed, or stopped, while a trial runs in a container: on a whole cluster."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.events.agent import AgentJoined
from tests.support import docker_daemon as support
from tests.support.docker_daemon import Daemon
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.real_part(support.lack())]
SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "summing" / "train.py"


class Bench:
    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon, self.directory = daemon, directory
        self.scratch, self.model = directory / "scratch", directory / "model"
        self.scratch.mkdir()
        self.scratch.chmod(0o777)
        self.model.mkdir()
        shutil.copy(SCRIPT, self.model)
        self.cluster = LiveCluster(directory / "c", cpu_slots=3)
        self.cluster.environment |= {
            "TENUTO_DOCKER_URL": daemon.url,
            "TENUTO_DOCKER_MOUNTS": ",".join([*support.mounts(), f"{self.scratch}:rw"]),
            "TENUTO_DOCKER_NETWORK": "none",
            "TENUTO_DOCKER_WARM_CONTAINERS_MAX": "0",  # so that each container is a trial's
            "TENUTO_HEARTBEAT_SECONDS": "0.5",
            "TENUTO_WARM_ENVIRONMENTS_MAX": "0",
        }

    def create(self, environment: dict[str, Any]) -> str:
        config = {
            "name": "summing",
            "entrypoint": "train.py",
            "max_restarts": 0,
            "searcher": {"name": "single", "metric": "total", "max_length": {"epochs": 2}, "smaller_is_better": False},
            "min_checkpoint_period": {"batches": 5},
            "environment": environment,
        }
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return str(self.cluster.json("exp", "create", path, self.model)["id"])

    def held(self, name: str) -> tuple[str, Path]:
        """A trial in a container that waits, with its first checkpoint saved; and the file that lets it go on."""
        go = self.scratch / name
        environment = support.environment()
        environment["mounts"].append({"source": str(self.scratch), "writable": True})
        environment["variables"] = {"TEST_HOLD_AT": "7", "TEST_HOLD_FILE": str(go)}
        experiment = self.create(environment)
        self.cluster.wait_for(go.with_suffix(".held").exists)
        self.cluster.wait_for(lambda: self.count(experiment, "CheckpointSaved") == 1)
        return experiment, go

    def count(self, experiment: str, kind: str) -> int:
        return sum(event.type == kind and event.correlation_id == experiment for event in self.cluster.events())

    def total(self, experiment: str) -> float:
        self.cluster.cli("exp", "wait", experiment)
        return float(self.cluster.json("exp", "describe", experiment)["best_metric"])

    def until_offered(self, *runtimes: str) -> None:
        """Until the agent says that it runs trials in these ways."""

        def offered() -> bool:
            joined = [event.data for event in self.cluster.events() if isinstance(event.data, AgentJoined)]
            return joined[-1].runtimes == runtimes

        self.cluster.wait_for(offered)

    def containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.daemon.client.containers(all=True, filters={"label": "tenuto.agent"})
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with support.daemon() as daemon:  # one of its own
        if isinstance(daemon, str):
            pytest.skip(daemon)
        bench = Bench(daemon, tmp_path_factory.mktemp("away"))
        with bench.cluster:
            yield bench


def test_trials_outlive_the_daemon_and_none_is_started_without_it(bench: Bench) -> None:
    cluster, daemon = bench.cluster, bench.daemon
    held, go = bench.held("killed")
    [container] = bench.containers()
    doomed, _ = bench.held("doomed")
    process = Path(f"/proc/{daemon.client.inspect_container(container['Id'])['State']['Pid']}")
    daemon.kill()
    bench.until_offered("process")
    assert process.exists(), "a container goes on without its daemon"
    cluster.cli("exp", "kill", doomed)
    waits = bench.create(support.environment())
    assert bench.total(bench.create({})) == 190, "processes run meanwhile, on the third slot"
    cluster.environment["COLUMNS"] = "400"
    assert "where images run" in cluster.cli("job", "ls").stdout
    agent = cluster.pid("agent")
    os.kill(agent, signal.SIGKILL)
    cluster.wait_for(lambda: cluster.pid("agent") != agent)
    assert bench.total(bench.create({})) == 190, "also with an agent that begins without a daemon"
    assert bench.count(held, "WorkersExited") == bench.count(waits, "AllocationGranted") == 0

    assert daemon.start()  # it ends its containers
    bench.until_offered("docker", "process")
    cluster.wait_for(lambda: bench.count(held, "WorkersStarted") == 2)
    assert not process.exists(), "a slot is not given twice"
    go.touch()
    assert [bench.total(experiment) for experiment in (held, waits)] == [190, 190]
    assert cluster.cli("exp", "wait", doomed, check=False).returncode != 0
    cluster.wait_for(lambda: not bench.containers())


def test_a_daemon_that_keeps_its_containers_or_is_stopped_costs_no_step(bench: Bench) -> None:
    cluster, daemon = bench.cluster, bench.daemon
    held, go = bench.held("kept")
    [container] = bench.containers()
    daemon.kill()
    bench.until_offered("process")
    assert daemon.start("--live-restore")
    bench.until_offered("docker", "process")
    strange = {"Image": support.IMAGE, "Cmd": ["true"], "Labels": {**container["Labels"], "tenuto.allocation": "9-9-9"}}
    daemon.client.create_container_from_config(strange)  # as one whose maker gave up waiting for the daemon
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        bench.until_offered("process")
        go.touch()
        cluster.wait_for(lambda: bench.count(held, "ValidationReported") == 1)
        assert bench.count(held, "WorkersExited") == 0, "nobody knows that it has ended"
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert bench.total(held) == 190
    assert bench.count(held, "WorkersStarted") == 1
    bench.until_offered("docker", "process")
    cluster.wait_for(lambda: not bench.containers())
