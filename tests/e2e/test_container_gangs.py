"""A trial in containers has the bits of the same trial in processes: a gang over three agents on a network of containers, and a
trial that goes on in an image and comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.run import GangRendezvousOpened, WorkersExited
from tenuto.schemas.events.trial import CheckpointSaved, EnvironmentRecorded
from tenuto.workers.agent.runtimes.docker.engine import LABEL_WARM
from tests.integration.test_exact_resume import assert_equal
from tests.support import docker_daemon as support
from tests.support.checkpoint_reports import recorded_files
from tests.support.docker_daemon import Daemon
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.real_part(support.lack())]
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "ranked"
BATCHES = 24
NETWORK = "tenuto-gangs"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scratch")
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def cluster(docker_daemon: Daemon, scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    directory.chmod(0o711)
    cluster = LiveCluster(directory / "c", cpu_slots=1)
    cluster.environment |= {
        "TENUTO_DOCKER_URL": docker_daemon.url,
        "TENUTO_DOCKER_MOUNTS": ",".join([*support.mounts(), f"{scratch}:rw"]),
        "TENUTO_DOCKER_NETWORK": "none",
        "TENUTO_DOCKER_GANG_NETWORK": NETWORK,
        "TENUTO_HEARTBEAT_SECONDS": "0.5",
        "OMP_NUM_THREADS": "1",
    }
    with support.network(docker_daemon, NETWORK), contextlib.ExitStack() as nodes:
        cluster.up()
        try:
            for name in ("second", "third"):
                nodes.enter_context(cluster.another_agent(name))
            yield cluster
            cluster.check_bus()
        finally:
            nodes.close()
            cluster.down()


class Hold:
    """A place where rank 0 waits in a batch."""

    def __init__(self, directory: Path, name: str, batch: int) -> None:
        self._held, self.go, self._batch = directory / f"{name}.held", directory / f"{name}.go", batch

    def variables(self, until: str = "hold") -> dict[str, str]:
        """Until `go` exists, or its worker is `told` to leave."""
        return {"TEST_ACT": f"{until} 0 {self._batch}", "TEST_HELD": str(self._held), "TEST_GO": str(self.go)}

    def wait(self, cluster: LiveCluster) -> None:
        cluster.wait_for(self._held.exists)
        self._held.unlink()


def in_image(scratch: Path) -> dict[str, Any]:
    environment = support.environment()
    environment["mounts"].append({"source": str(scratch), "writable": True})
    return environment


def submit(cluster: LiveCluster, directory: Path, slots: int, environment: dict[str, Any], **variables: str) -> str:
    given = {"variables": variables} if variables else {}
    config = {
        "name": "ranked",
        "entrypoint": "model_def:RankedTrial",
        "hyperparameters": {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0} | given,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": BATCHES}},
        "resources": {"slots_per_trial": slots},
        "min_checkpoint_period": {"batches": 5},
        "reproducibility": {"experiment_seed": 5},
        "environment": {**environment, "variables": {"OMP_NUM_THREADS": "1"}},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(cluster.json("exp", "create", path, CONTEXT)["id"])


def of(cluster: LiveCluster, experiment: str, kind: type) -> list[Event]:
    return [event for event in cluster.events() if isinstance(event.data, kind) and event.correlation_id == experiment]


def linked(cluster: LiveCluster, allocation: str) -> list[Path]:
    """Directories of an allocation's ranks on all agents: a supervisor starts its ranks when it is linked with that of rank 0."""
    # By `glob`, which passes over directories that are removed meanwhile; `Path.glob` raises.
    return [Path(found) for found in glob(f"{cluster.directory.parent}/c*/**/containers/{allocation}/rank-*", recursive=True)]


def final_state(cluster: LiveCluster, experiment: str) -> dict[str, Any]:
    """All that the last checkpoint holds but the record of who made it: weights, optimizers, generators."""
    cluster.cli("exp", "wait", experiment)
    saved = of(cluster, experiment, CheckpointSaved)[-1].data
    assert isinstance(saved, CheckpointSaved)
    assert saved.batches == BATCHES
    files = recorded_files(saved, cluster.directory / "shared")
    found: dict[str, Any] = {name: path.read_bytes() for name, path in files.items() if name not in ("tenuto.json", "state.pt")}
    return {**dict(sorted(found.items())), "state": torch.load(files["state.pt"], weights_only=True)}


def test_a_gang_in_three_containers_has_the_bits_of_one_in_processes_though_one_is_killed(
    cluster: LiveCluster, docker_daemon: Daemon, scratch: Path, tmp_path: Path
) -> None:
    client = docker_daemon.client
    hold = Hold(scratch, "gang", 13)
    gang = submit(cluster, tmp_path, 3, in_image(scratch), **hold.variables())
    hold.wait(cluster)
    running = containers(docker_daemon, cluster)
    assert len(running) == 3
    addresses = {client.inspect_container(item["Id"])["NetworkSettings"]["Networks"][NETWORK]["IPAddress"] for item in running}
    [opened] = of(cluster, gang, GangRendezvousOpened)
    assert isinstance(opened.data, GangRendezvousOpened)
    assert opened.data.address.rpartition(":")[0] in addresses, "rank 0 is reached at its container's own address"

    client.kill(running[1]["Id"])
    hold.go.touch()
    cluster.wait_for(lambda: len(linked(cluster, f"{gang}-1-2")) == 3)
    assert not {item["Id"] for item in running} & {item["Id"] for item in containers(docker_daemon, cluster)}
    in_containers = final_state(cluster, gang)
    outcomes = [event.data.outcome for event in of(cluster, gang, WorkersExited)]  # type: ignore[attr-defined]
    assert outcomes == ["lost", "finished"]
    log = cluster.cli("trial", "logs", f"{gang}-1").stdout
    assert f"resumed from checkpoint {gang}-1-1-10 at batch 10" in log
    cluster.wait_for(lambda: not containers(docker_daemon, cluster))

    assert_equal(in_containers, final_state(cluster, submit(cluster, tmp_path, 3, {})))


def test_a_trial_goes_on_in_an_image_and_comes_back_with_the_same_bits(
    cluster: LiveCluster, scratch: Path, tmp_path: Path
) -> None:
    hold, whole = Hold(scratch, "alone", 13), submit(cluster, tmp_path, 1, {})
    first = submit(cluster, tmp_path, 1, {}, **hold.variables(until="told"))
    hold.wait(cluster)
    cluster.wait_for(lambda: len(of(cluster, first, CheckpointSaved)) == 2)  # of batches 5 and 10
    cluster.cli("exp", "kill", first)
    cluster.cli("exp", "wait", first, check=False)

    image = tmp_path / "image.yaml"
    image.write_text(yaml.safe_dump({"environment": in_image(scratch)}))
    second = str(cluster.json("exp", "continue", first, "-f", image)["id"])
    hold.wait(cluster)
    cluster.cli("exp", "pause", second)  # returns when that is on record: its worker hears of it later
    cluster.wait_for(lambda: bool(of(cluster, second, WorkersExited)))
    assert [event.data.batches for event in of(cluster, second, CheckpointSaved)] == [14]  # type: ignore[attr-defined]
    cluster.cli("exp", "kill", second)
    cluster.cli("exp", "wait", second, check=False)
    third = str(cluster.json("exp", "continue", second, "--set", "environment.image=null")["id"])
    assert_equal(final_state(cluster, third), final_state(cluster, whole))
    recorded = [event.data for what in (first, second, third) for event in of(cluster, what, EnvironmentRecorded)]
    images = [data.environment.image for data in recorded if isinstance(data, EnvironmentRecorded)]
    assert [bool(image) for image in images] == [False, True, False]


def containers(daemon: Daemon, cluster: LiveCluster) -> list[dict[str, Any]]:
    """Those of the cluster's runs: others' tests may have left theirs on the same daemon, and a warm one outlives its trial."""
    found: list[dict[str, Any]] = daemon.client.containers(all=True, filters={"label": "tenuto.agent"})
    own = [item for item in found if item["Labels"]["tenuto.agent"].startswith(f"{cluster.directory.resolve()}")]
    return [item for item in own if LABEL_WARM not in item["Labels"]]
