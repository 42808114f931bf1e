"""Account of the processes in containers of an agent that is root, by its settings, in a real daemon."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.kernel.settings import Settings
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.choose import make_runtime
from tenuto.workers.agent.runtimes.combined_runtime import SeveralRuntimes
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tests.support import docker_daemon as support
from tests.support.control_plane import AGENT
from tests.support.docker_daemon import Daemon
from tests.support.runtimes import SLOTS, in_image, shell, work_of
from tests.support.waiting import SECONDS_MAX

pytestmark = pytest.mark.real_part(support.lack())
LOOKS = "id -u; touch $TMPDIR/a && echo written; touch /file 2>/dev/null && echo root wrote; cat /proc/self/status | grep CapEff"
NO_RIGHTS = f"CapEff:\t{0:016x}"


@pytest.mark.parametrize(("docker_root", "uid"), [(0, support.nobody()), (1, 0)], ids=["nobody", "root"])
async def test_a_trial_is_root_only_where_the_operator_says_so(
    docker_daemon: Daemon, tmp_path: Path, docker_root: int, uid: int
) -> None:
    agent, context = tmp_path / "agent", tmp_path / "context"
    agent.mkdir(mode=0o711)
    context.mkdir(mode=0o755)
    settings = Settings(
        docker_url=docker_daemon.url, docker_root=docker_root, docker_network="none",
        docker_mounts=",".join(support.mounts()), docker_warm_containers_max=0, shared_directory=str(tmp_path / "shared"),
    )  # fmt: skip
    runtime = make_runtime(settings, AgentNode(AGENT, agent), tmp_path / "shared", slots=SLOTS)
    assert isinstance(runtime, SeveralRuntimes)
    [containers] = [one for one in runtime.all if isinstance(one, DockerRuntime)]
    containers._facts = replace(containers._facts, command=shell(LOOKS))
    await runtime.open()
    work = in_image(work_of(context))
    try:
        await runtime.prepare(work)
        handle = await runtime.start(work)
        await runtime.go(handle)
        async with asyncio.timeout(SECONDS_MAX):
            ended = await runtime.wait("1-1-1", handle)
        printed = (await runtime.output("1-1-1", None, (0, 0), final=True)).stdout
    finally:
        await runtime.clean("1-1-1")
        await runtime.close()
    assert printed == (str(uid), "written", *(["root wrote"] if uid == 0 else []), NO_RIGHTS), ended
