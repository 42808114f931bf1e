"""Pods in the images that trials name: each trial trains in a pod of its own image, which has Python, a package of its own, and
nothing of Tenuto. One that is not allowed waits with a note, and one that cannot be pulled is told where the user looks.

Kubernetes is the tests' API server with a kubelet that runs containers as processes; an image is an environment of Python without
packages. Cluster, agents and trials are real."""

from __future__ import annotations

import asyncio
import venv
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
MODEL = Path(__file__).parent / "models/imaged"
ONE, TWO, AWAY, OTHER = "example.org/vision:1", "example.org/speech:2", "example.org/away:3", "elsewhere.org/x:1"


def image(directory: Path, name: str) -> Path:
    """A Python without packages, but for one that says which it is; returns the directory of its programs."""
    venv.create(directory, symlinks=True, with_pip=False)
    [packages] = directory.glob("lib/python3*/site-packages")
    (packages / "of_the_image.py").write_text(f"NAME = {name!r}\n")
    return directory / "bin"


async def test_each_trial_trains_in_a_pod_of_its_own_image(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    cluster.environment["TENUTO_PROVISIONER_DIRECTORY"] = str(tmp_path)
    (tmp_path / "pods").mkdir()
    images = {name: image(tmp_path / f"image-{at}", name) for at, name in enumerate((ONE, TWO))}
    async with bench_of(tmp_path) as bench:
        shared = str(tmp_path / "cluster/shared")
        quick = {"TENUTO_HEARTBEAT_SECONDS": "0.5", **COLD}
        kubelet = Kubelet(bench.api, tmp_path / "pods", images=images, TENUTO_SHARED_DIRECTORY=shared, **quick)
        running = asyncio.create_task(kubelet.run())
        try:
            with cluster.listening("127.0.0.4"):
                await _use(cluster, bench, tmp_path / "gate")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{kubelet.said()}") from error
        finally:
            await stop_task(running)


async def _use(cluster: LiveCluster, bench: Bench, gate: Path) -> None:
    async def cli(*words: str | Path, check: bool = True) -> str:
        done = await asyncio.to_thread(partial(cluster.cli, *words, check=check))
        return done.stdout if check else done.stdout + done.stderr

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    async def wait_for(what: Callable[[], object]) -> None:
        await asyncio.to_thread(cluster.wait_for, lambda: bool(what()))

    async def create(name: str, *more: str, check: bool = True) -> str:
        options = ("--set", f"hyperparameters.gate={gate}", "--set", f"environment.image={name}", *more)
        return await cli("exp", "create", MODEL / "config.yaml", MODEL, *options, check=check)

    settings = ("--set", f"image={IMAGE}", "--set", "kubeconfig=kubeconfig", "--node-image", "example.org/*")
    await cli("pool", "create", "gpus", "--provisioner", "kubernetes", *settings, "--max", "3", "--idle-seconds", "10")
    checked = await cli("pool", "check", "gpus")
    assert "dry run of a pod of type default in a trial's image" in checked
    assert "problem" not in checked

    for name in (ONE, TWO, AWAY):
        await create(name, "--set", "environment.variables.PYTHONPATH=/opt/nothing")
    told = await create(OTHER, check=False)
    assert (
        f"Note: nodes of pool gpus run in the images example.org/*, and not in {OTHER}, so the trials wait for an agent" in told
    )
    await wait_for(lambda: len(of("WorkersStarted")) == 2 and of("NodeFailed"))
    pods = {pod["spec"]["containers"][0]["image"]: pod for pod in bench.api.pods()}
    assert {ONE, TWO} <= set(pods) <= {ONE, TWO, AWAY}
    assert {pod["spec"]["initContainers"][0]["image"] for pod in pods.values()} == {IMAGE}
    on = {data.experiment_id: data.slots[0].agent_id for data in of("AllocationGranted")}
    ran = {data.agent_id: data.image for data in of("AgentJoined") if data.image}
    assert [ran[on[number]] for number in (1, 2)] == [ONE, TWO], "each in its own, and the third waits"
    missing = f'ErrImagePull: failed to pull image "{AWAY}": not found'
    assert {data.message for data in of("NodeFailed")} == {missing}
    queue = await cli("job", "ls", "--pool", "gpus")
    assert f"could not be had: {missing}" in queue
    assert "its nodes run in the images example.org/* and in no others" in queue
    assert missing in " ".join((await cli("trial", "describe", "3-1")).replace("│", "").split())

    gate.touch()
    await wait_for(lambda: len(of("ExperimentCompleted")) == 2)
    for number, name in ((1, ONE), (2, TWO)):
        assert f"trained in {name} with" in await cli("trial", "logs", f"{number}-1")
    assert [data.environment.image for data in of("EnvironmentRecorded")] in ([ONE, TWO], [TWO, ONE])
    for waiting in ("3", "4"):
        await cli("exp", "cancel", waiting)
    await wait_for(lambda: len(of("NodeEnded")) == len(of("NodeRequested")))
    assert {data.image for data in of("NodeRequested")} == {ONE, TWO, AWAY}
