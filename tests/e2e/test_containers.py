"""Trials that name an image, in containers of a real Docker daemon, on a whole cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import cgroups, private_registry
from tests.support import docker_daemon as support
from tests.support.docker_daemon import BARE_IMAGE, IMAGE, Daemon
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(support.lack())]
SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "summing" / "train.py"
MEMORY_BYTES, PROCESS_MEMORY_BYTES = 300 << 20, 400 << 20
HUNGRY = "import sys, tenuto\nrun = tenuto.init()\nprint(sys.executable, flush=True)\nall_of_it = b'x' * (1 << 30)\n"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scratch")
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def cluster(docker_daemon: Daemon, scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    cluster = LiveCluster(tmp_path_factory.mktemp("cluster"))
    cluster.environment |= {
        "TENUTO_DOCKER_URL": docker_daemon.url,
        "TENUTO_DOCKER_MOUNTS": ",".join([*support.mounts(), f"{scratch}:rw"]),
        "TENUTO_DOCKER_NETWORK": "none",
        "TENUTO_DOCKER_MEMORY_BYTES_PER_SLOT": str(MEMORY_BYTES),
        "TENUTO_WARM_ENVIRONMENTS_MAX": "0",
    }
    with cgroups.removed(f"/tenuto-e2e-{os.getpid()}") as parent:
        if not cgroups.lack():
            cluster.environment |= {"TENUTO_MEMORY_BYTES_PER_SLOT": str(PROCESS_MEMORY_BYTES), "TENUTO_CGROUP_PARENT": parent}
        with cluster:
            yield cluster
        assert cgroups.below(parent) == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    shutil.copy(SCRIPT, path)
    (path / "hungry.py").write_text(HUNGRY)
    return path


def create(cluster: LiveCluster, model: Path, environment: Mapping[str, Any], entrypoint: str = "train.py") -> str:
    config = {
        "name": "in an image",
        "entrypoint": entrypoint,
        "max_restarts": 0,
        "searcher": {"name": "single", "metric": "total", "max_length": {"epochs": 2}, "smaller_is_better": False},
        "environment": dict(environment),
    }
    path = model.with_name(f"{model.name}.yaml")
    path.write_text(yaml.safe_dump(config))
    return str(cluster.json("exp", "create", path, model)["id"])


def containers(daemon: Daemon, cluster: LiveCluster) -> list[dict[str, Any]]:
    """The cluster's: others' tests may have left theirs on the same daemon."""
    found: list[dict[str, Any]] = daemon.client.containers(all=True, filters={"label": "tenuto.agent"})
    return [item for item in found if Path(item["Labels"]["tenuto.agent"]).is_relative_to(cluster.directory.resolve())]


def test_a_trial_in_an_image_outlives_its_agent_and_is_trained_to_the_end(
    cluster: LiveCluster, docker_daemon: Daemon, scratch: Path, model: Path
) -> None:
    go = scratch / "go"
    environment = support.environment()
    environment["mounts"].append({"source": str(scratch), "writable": True})
    environment["variables"] = {"TEST_HOLD_AT": "7", "TEST_HOLD_FILE": str(go)}
    experiment = create(cluster, model, environment)
    cluster.wait_for(go.with_suffix(".held").exists)
    assert go.with_suffix(".held").stat().st_uid == support.nobody(), "no process of a container is root"
    [before] = containers(docker_daemon, cluster)
    about = docker_daemon.client.inspect_container(before["Id"])
    assert "value" not in str(about["Config"]["Env"])
    assert about["HostConfig"]["Memory"] == MEMORY_BYTES
    assert about["HostConfig"]["CapDrop"] == ["ALL"]

    agent = cluster.pid("agent")
    os.kill(agent, signal.SIGKILL)
    cluster.wait_for(lambda: cluster.pid("agent") != agent)
    go.touch()
    cluster.cli("exp", "wait", experiment)
    view = cluster.json("exp", "describe", experiment)
    [trial] = view["trial_list"]
    assert (view["state"], trial["state"], trial["batches"], trial["best_metric"]) == ("completed", "completed", 20, 190)
    events = [event for event in cluster.events() if getattr(event.data, "trial_id", None) == trial["id"]]
    assert [event.type for event in events].count("WorkersStarted") == 1, "the container went on while there was no agent"
    [recorded] = [event.data for event in events if event.type == "EnvironmentRecorded"]
    digest = docker_daemon.client.inspect_image(IMAGE)["Id"]
    assert recorded.environment.image == f"{IMAGE}@{digest}"  # type: ignore[attr-defined]
    cluster.cli("exp", "replay", experiment, "--verify")
    cluster.wait_for(lambda: not containers(docker_daemon, cluster))
    assert not list((cluster.directory / "agent").glob("containers/*"))


@pytest.mark.real_part(private_registry.lack())
def test_an_image_of_a_registry_with_a_password_that_a_secret_has(
    cluster: LiveCluster, docker_daemon: Daemon, model: Path, tmp_path: Path
) -> None:
    with private_registry.registry(tmp_path) as registry:
        name = f"{registry.host}/team/train:1"
        support.make_image(docker_daemon.client, name, "LABEL of=olga")
        registry.push(docker_daemon.client, name)
        environment = support.environment() | {"image": name, "pull": "missing"}
        refused = create(cluster, model, environment)
        assert cluster.cli("exp", "wait", refused, check=False).returncode == 2
        again = ("exp", "create", model.with_name(f"{model.name}.yaml"), model, "--set", "environment.registry_auth=absent")
        unknown = cluster.cli(*again, check=False)
        assert "you have no secret absent" in " ".join(unknown.stderr.split())

        value = json.dumps({"username": private_registry.USER, "password": private_registry.PASSWORD})
        cluster.client().put("/secrets/registry", {"value": value})
        experiment = create(cluster, model, environment | {"registry_auth": "registry", "read_only": True})
        cluster.cli("exp", "wait", experiment)
        assert cluster.json("exp", "describe", experiment)["state"] == "completed"
        assert cluster.cli("exp", "wait", create(cluster, model, environment), check=False).returncode == 2, "nor from the node"
    for directory in (cluster.directory, docker_daemon.directory):
        found = subprocess.run(["grep", "-rlaF", "-e", private_registry.PASSWORD, directory], capture_output=True, text=True)
        assert not found.stdout, "the password is on no disk, in no record and no log"


def test_what_is_wrong_with_an_environment_is_said_in_one_sentence(
    cluster: LiveCluster, docker_daemon: Daemon, scratch: Path, model: Path
) -> None:
    environment = support.environment()
    hungry = environment | {"variables": {"PATH": "/usr/bin:/bin"}}
    cases = {}
    if not cgroups.lack():
        cases[create(cluster, model, {}, "hungry.py")] = "The trial ran out of memory: it used its limit of 400 MiB"
    assert "within what each agent's operator allows" in cluster.cli("pool", "mounts", "default", *support.mounts()).stdout
    outside = environment | {"mounts": [*environment["mounts"], str(scratch)]}
    cases |= {
        create(cluster, model, outside): f"environment.mounts has {scratch}, which this agent's pool does not allow",
        create(cluster, model, hungry, "hungry.py"): "ran out of memory: it used its limit of 300 MiB",
        create(cluster, model, environment | {"image": "tenuto/missing:1"}): "The image tenuto/missing:1 is not on this",
        create(cluster, model, environment | {"image": BARE_IMAGE, "mounts": []}): f"The image {BARE_IMAGE} has no python3",
        create(cluster, model, environment | {"mounts": ["/var"]}): "environment.mounts has /var, which this agent's operator",
        create(cluster, model, {"image": "127.0.0.1:9/no/such:1"}): "The image 127.0.0.1:9/no/such:1 cannot be pulled",
    }
    for experiment, sentence in cases.items():
        done = cluster.cli("exp", "wait", experiment, check=False)
        assert done.returncode == 2
        assert sentence in " ".join(done.stderr.split())
    assert "each agent's operator does" in cluster.cli("pool", "mounts", "default", "--reset").stdout
    cluster.wait_for(lambda: not containers(docker_daemon, cluster))
