"""Images with a Python and libraries of their own, in containers of a real Docker daemon: what is theirs is used as it is, and
what cannot be used ends the trial with one sentence."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import docker_daemon as support
from tests.support.docker_daemon import Daemon
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(support.lack())]
BASE = Path(sys.base_prefix)
SITE = f"/opt/python/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
OTHER_VERSION = "4.99.0"
LIBRARY = "typing_extensions"
"""A library that the harness needs, so that the agent brings it, too."""
TRAIN = f"""
from importlib import metadata
import {LIBRARY}, pydantic, tenuto
print("seen:", metadata.version("{LIBRARY}"), {LIBRARY}.OF, {LIBRARY}.__file__)
print("brought:", pydantic.__file__)
with tenuto.init() as run:
    for operation in run.operations():
        run.report_validation(operation.steps, {{"loss": 1.0}})
"""
CONFIG = {
    "name": "foreign", "entrypoint": "train.py", "max_restarts": 3,
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
}  # fmt: skip


def distribution(name: str, version: str) -> dict[str, bytes | str]:
    """What an installation says of itself."""
    place = f"{SITE}/{name}-{version}.dist-info"
    return {f"{place}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()}


def of_its_own() -> dict[str, bytes | str]:
    """A Python whose libraries are in the image. Its standard library and its program are those of the tests' Python, mounted."""
    library = Path(sysconfig.get_path("purelib"), f"{LIBRARY}.py").read_bytes() + b"\nOF = 'the image'\n"
    return {
        "/opt/python/pyvenv.cfg": f"home = {BASE}/bin\ninclude-system-site-packages = false\n".encode(),
        "/opt/python/bin/python3": str(BASE / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"),
        f"{SITE}/{LIBRARY}.py": library,
        **distribution(LIBRARY, OTHER_VERSION),
    }


def mounts() -> list[str]:
    """The system and the tests' Python without what is installed for the tests."""
    return [path for path in support.mounts() if path != sys.prefix]


def others(*wanted: str) -> Path | None:
    """Another Python on this machine, beside that of the tests."""
    found = [path for name in wanted for path in sorted(BASE.parent.glob(f"{name}.*/bin/python{name}"))]
    return found[0] if found else None


OLD, NEWER = others("3.10", "3.9"), others("3.12", "3.13")


@pytest.fixture(scope="module")
def cluster(docker_daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    if sys.prefix == sys.base_prefix:
        pytest.skip("The tests' Python is no virtual environment: all that is installed for it would be in the image.")
    cluster = LiveCluster(tmp_path_factory.mktemp("cluster"), warm=False)
    cluster.environment |= {
        "TENUTO_DOCKER_URL": docker_daemon.url,
        "TENUTO_DOCKER_MOUNTS": ",".join([*mounts(), str(BASE.parent)]),
        "TENUTO_DOCKER_NETWORK": "none",
        "TENUTO_DOCKER_WARM_CONTAINERS_MAX": "0",
    }
    with cluster:
        yield cluster


def run(cluster: LiveCluster, place: Path, image: str, *more: Path) -> Mapping[str, Any]:
    model = place / "model"
    model.mkdir()
    (model / "train.py").write_text(TRAIN)
    mounted = [{"source": str(path)} for path in dict.fromkeys([*mounts(), *map(str, more)])]
    (place / "config.yaml").write_text(
        yaml.safe_dump(CONFIG | {"environment": {"image": image, "pull": "never", "mounts": mounted}})
    )
    experiment = str(cluster.json("exp", "create", place / "config.yaml", model)["id"])
    cluster.cli("exp", "wait", experiment, check=False)
    [trial] = cluster.json("exp", "describe", experiment)["trial_list"]
    return dict(trial)


def test_the_version_that_an_image_has_is_the_one_that_its_trial_sees(
    cluster: LiveCluster, docker_daemon: Daemon, tmp_path: Path
) -> None:
    support.make_image(docker_daemon.client, "foreign/own:1", "ENV PATH=/opt/python/bin:/usr/bin:/bin", files=of_its_own())
    trial = run(cluster, tmp_path, "foreign/own:1")
    assert trial["state"] == "completed", trial
    said = cluster.log(trial["id"], "brought:", kind="trial")
    assert metadata.version(LIBRARY) != OTHER_VERSION
    assert f"seen: {OTHER_VERSION} the image {SITE}/{LIBRARY}.py" in said
    assert "brought: /tenuto/packages-" in said, "what the image has not is the agent's"


def test_a_library_of_the_image_that_is_too_old_ends_the_trial_at_once(
    cluster: LiveCluster, docker_daemon: Daemon, tmp_path: Path
) -> None:
    files = of_its_own() | distribution("pydantic", "1.10.0")
    support.make_image(docker_daemon.client, "foreign/conflict:1", "ENV PATH=/opt/python/bin:/usr/bin:/bin", files=files)
    trial = run(cluster, tmp_path, "foreign/conflict:1")
    sentence = "The image foreign/conflict:1 has packages that are too old for Tenuto: pydantic 1.10.0 (needed: "
    check_refused(cluster, trial, sentence)


@pytest.mark.skipif(OLD is None, reason="There is no Python before 3.11 beside that of the tests.")
def test_a_python_of_the_image_that_is_too_old_ends_the_trial_at_once(
    cluster: LiveCluster, docker_daemon: Daemon, tmp_path: Path
) -> None:
    assert OLD is not None
    support.make_image(docker_daemon.client, "foreign/old:1", python=str(OLD))
    trial = run(cluster, tmp_path, "foreign/old:1", OLD.parents[1])
    version = OLD.name.removeprefix("python")
    said = f"The image foreign/old:1 has cpython {version} as its python3, but a trial needs CPython 3.11 or newer"
    check_refused(cluster, trial, f"{said}: use an image with a newer Python.")


@pytest.mark.skipif(NEWER is None, reason="There is no other Python from 3.12 on beside that of the tests.")
def test_an_image_with_another_python_is_told_which_libraries_it_needs(
    cluster: LiveCluster, docker_daemon: Daemon, tmp_path: Path
) -> None:
    assert NEWER is not None
    support.make_image(docker_daemon.client, "foreign/newer:1", python=str(NEWER))
    trial = run(cluster, tmp_path, "foreign/newer:1", NEWER.parents[1])
    check_refused(cluster, trial, "but the image foreign/newer:1 has python3.")
    assert "install in the image: pip install" in str(trial)


def check_refused(cluster: LiveCluster, trial: Mapping[str, Any], sentence: str) -> None:
    """The trial has failed with that sentence, and was not started again."""
    assert trial["state"] == "failed", trial
    events = [event for event in cluster.events() if getattr(event.data, "trial_id", None) == trial["id"]]
    assert [event.type for event in events].count("AllocationGranted") == 1, "a second start would end alike"
    assert sentence in str([event.data for event in events]), events[-3:]
