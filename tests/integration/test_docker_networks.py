"""What is wrong with the network of a gang is said in one sentence: at the agent's start, at the container's, and where one agent
does not reach another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent.runtimes.docker.engine import Engine
from tenuto.workers.agent.runtimes.docker.networks import check_network
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable
from tenuto.workers.launch import links
from tenuto.workers.launch.interfaces import interface_of, named
from tenuto.workers.launch.layout import RENDEZVOUS_FILE, GangPart
from tests.support import docker_daemon as support
from tests.support.control_plane import AGENT
from tests.support.docker_daemon import Daemon
from tests.support.runtimes import DOCKER_URL, gang_work_of, in_image, make_runtime, shell

with_daemon = pytest.mark.real_part(support.lack())


@with_daemon
async def test_an_agent_does_not_start_with_a_network_that_joins_nothing(docker_daemon: Daemon, tmp_path: Path) -> None:
    engine = Engine(docker_daemon.url, str(tmp_path))
    await engine.open()
    try:
        with support.network(docker_daemon, "tenuto-checked"):
            for name in ("host", "tenuto-checked"):
                await check_network(engine, name)
        for name, words in (("tenuto-checked", "has no such network"), ("none", "cannot reach"), ("container:x", "cannot reach")):
            with pytest.raises(RuntimeUnavailable, match=words):
                await check_network(engine, name)
    finally:
        engine.close()


@with_daemon
async def test_a_network_that_was_removed_meanwhile_is_named(
    docker_daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOCKER_URL, docker_daemon.url)
    context = tmp_path / "agent" / "contexts" / ("0" * 64)
    context.mkdir(parents=True)
    runtime = make_runtime("docker", tmp_path, shell("exit 0"), gang_network="tenuto-removed")
    assert isinstance(runtime, DockerRuntime)
    with support.network(docker_daemon, "tenuto-removed"):
        await runtime.open()
    work = in_image(
        gang_work_of(context, (AgentSlots(agent_id=AGENT, slot_ids=(0,)), AgentSlots(agent_id="node-2", slot_ids=(0,))))
    )
    try:
        await runtime.prepare(work)
        with pytest.raises(OSError, match=r"^network tenuto-removed not found .*TENUTO_DOCKER_GANG_NETWORK"):
            await runtime.start(work)
        assert await runtime.find() == {}
    finally:
        await runtime.clean(work.allocation_id)
        await runtime.close()


@pytest.mark.parametrize(("network", "words"), [("gangs", "over the Docker network gangs"), ("", "on all ports")])
def test_an_agent_that_is_not_reached_is_named_with_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, words: str
) -> None:
    monkeypatch.setattr(links, "DIAL_SECONDS_MAX", 0.1)
    agents = (("first", 1), ("second", 1))
    part = GangPart("1-1-1", agents, 1, str(tmp_path), "127.0.0.1", network=network)
    (tmp_path / RENDEZVOUS_FILE).write_text("127.0.0.1:1")
    with pytest.raises(OSError, match=rf"^agent first cannot be reached at 127.0.0.1:1 from 127.0.0.1 on agent second .*{words}"):
        links.dial(part)


def test_interfaces_are_known_by_their_addresses() -> None:
    assert [interface_of(address) for address in ("127.0.0.1", "::1", "192.0.2.255", "fd00::9")] == ["lo", "lo", "", ""]
    assert [named("10.0.0.1", 7), named("fd00::1", 7)] == ["10.0.0.1:7", "[fd00::1]:7"]
