"""Limits of containers' processes, and roots that they may not write to, in a real daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.kernel.account import find_account
from tenuto.kernel.storage.stores import stores_of
from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker.description import ContainerLimits
from tenuto.workers.agent.runtimes.docker.mounts import read_allowed
from tenuto.workers.agent.runtimes.docker.ulimits import read_ulimits
from tenuto.workers.agent.runtimes.runtime import Exit, Work
from tests.support import docker_daemon as support
from tests.support.control_plane import AGENT
from tests.support.docker_daemon import Daemon
from tests.support.runtimes import SLOTS, InImage, in_image, shell, work_of
from tests.support.waiting import SECONDS_MAX

pytestmark = pytest.mark.real_part(support.lack())
LOOKS = (
    "ulimit -Sn; ulimit -Hn; ulimit -s; grep -c ' / overlay ro,' /proc/mounts; touch /tmp/a $TMPDIR/b $HOME/c && echo written; "
    "touch /file 2>/dev/null || echo not written"
)


class Bench:
    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self._daemon, self.agent, self.context = daemon, directory / "agent", directory / "context"
        self.ended: Exit | None = None
        self.agent.mkdir(mode=0o711)
        self.context.mkdir(mode=0o755)

    async def printed(self, limits: ContainerLimits, **environment: object) -> tuple[str, ...]:
        runtime = InImage(
            AgentNode(AGENT, self.agent),
            stores_of(str(self.agent.parent / "shared"), ""),
            url=self._daemon.url,
            slots=SLOTS,
            allowed=read_allowed(",".join(support.mounts())),
            limits=limits,
            network="none",
            account=find_account("nobody"),
            command=shell(LOOKS),
            packages_directory=self._daemon.directory / "packages",
        )
        await runtime.open()
        try:
            work = self._work(environment)
            await runtime.prepare(work)
            handle = await runtime.start(work)
            await runtime.go(handle)
            async with asyncio.timeout(SECONDS_MAX):
                self.ended = await runtime.wait("1-1-1", handle)
            return (await runtime.output("1-1-1", None, (0, 0), final=True)).stdout
        finally:
            await runtime.clean("1-1-1")
            await runtime.close()

    def _work(self, environment: dict[str, object]) -> Work:
        work = in_image(work_of(self.context))
        config = work.assignment.config
        config = config.model_copy(update={"environment": config.environment.model_copy(update=environment)})
        return replace(work, assignment=work.assignment.model_copy(update={"config": config}))


@pytest.fixture
async def bench(docker_daemon: Daemon, tmp_path: Path) -> AsyncIterator[Bench]:
    yield Bench(docker_daemon, tmp_path)
    assert os.listdir(tmp_path / "agent" / "containers") == []


@pytest.mark.parametrize("by_operator", [True, False])
async def test_limits_and_a_root_that_cannot_be_written(bench: Bench, by_operator: bool) -> None:
    limits = ContainerLimits(ulimits=read_ulimits("nofile=700:800, stack=4194304"), read_only=by_operator)
    printed = await bench.printed(limits, read_only=not by_operator)
    assert printed == ("700", "800", "4096", "1", "written", "not written")


async def test_without_them_a_container_is_as_before(bench: Bench) -> None:
    assert (await bench.printed(ContainerLimits()))[3:] == ("0", "written", "not written")


async def test_a_limit_that_the_daemon_may_not_set_is_told_with_its_setting(bench: Bench) -> None:
    with pytest.raises(OSError, match="TENUTO_DOCKER_ULIMITS"):
        await bench.printed(ContainerLimits(ulimits=read_ulimits("nofile=2147483648")))


@pytest.mark.parametrize(("program", "code"), [("/bin/true", 0), ("/bin/false", 1)])
async def test_an_image_whose_python_runs_nothing_is_no_lost_node(
    bench: Bench, docker_daemon: Daemon, monkeypatch: pytest.MonkeyPatch, program: str, code: int
) -> None:
    """Otherwise its trial would be started again and again, for hours."""
    name = f"tenuto/python{program.replace('/', '-')}:1"
    support.make_image(docker_daemon.client, name, python=program)
    monkeypatch.setattr(support, "IMAGE", name)
    assert await bench.printed(ContainerLimits()) == ()
    assert bench.ended is not None
    assert bench.ended.code == (EXIT_CODE_WILL_REPEAT if code else 1)
    assert bench.ended.said == f"The image's python3 could not begin (exit code {code}): it said nothing"
