"""Warm containers of a daemon that changes no share of the processors, as podman before 5.1: Docker stands in for it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tenuto.workers.agent.runtimes.docker import warm_container
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tests.support import docker_daemon as support
from tests.support.control_plane import make_assignment
from tests.support.docker_daemon import Daemon
from tests.support.runtimes import DOCKER_URL, InWarmImage, in_image, make_runtime, shell, work_of

pytestmark = pytest.mark.real_part(support.lack())


async def test_a_container_that_keeps_the_least_share_is_not_used_and_the_next_has_its_own(
    docker_daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unable(engine: Engine, container: str, shares: int) -> bool:
        engine.changes_shares = False
        return False

    monkeypatch.setattr(Engine, "share_processors", unable)
    monkeypatch.setattr(warm_container, "SHARES_TO_IMPORT", 512)
    monkeypatch.setenv(DOCKER_URL, docker_daemon.url)
    context = tmp_path / "agent" / "contexts" / ("0" * 64)
    context.mkdir(parents=True)
    runtime = make_runtime("docker-warm", tmp_path, shell("exit 0"))
    assert isinstance(runtime, InWarmImage)
    runtime.ahead = False
    await runtime.open()
    try:
        work = in_image(work_of(context, make_assignment("0" * 64)))
        await runtime.prepare(work)
        prepared = runtime._prepared[work.allocation_id]
        recipe = runtime.warm.recipe(runtime._facts, work, *prepared, runtime.files(work.allocation_id))
        assert recipe is not None
        made = runtime.warm.containers
        await made.make(recipe)
        assert made._idle == []
        assert made._failed[recipe.key] < math.inf
        await made.make(recipe)
        [container] = made._idle
        found = docker_daemon.client.inspect_container(container.container)
        assert found["HostConfig"]["CpuShares"] == warm_container.SHARES
    finally:
        await runtime.sweep(set())
        await runtime.close()
