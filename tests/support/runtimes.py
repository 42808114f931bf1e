"""Runtimes of workers for the contract suite, and an agent that dies in the middle of a start:
`runtimes.py KIND DIRECTORY CONTEXT SCRIPT` starts a run, prints its handle, and kills itself. Without SCRIPT it only prepares."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from tenuto.kernel.account import confined_root, find_account
from tenuto.kernel.confinement import can_confine
from tenuto.kernel.storage.stores import stores_of
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker import warm_container
from tenuto.workers.agent.runtimes.docker.description import ContainerLimits
from tenuto.workers.agent.runtimes.docker.mounts import read_allowed
from tenuto.workers.agent.runtimes.docker.runtime import DockerRuntime
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Handle, Runtime, Work
from tests.support import docker_daemon
from tests.support.control_plane import AGENT, make_assignment
from tests.support.example_plugins import SOURCE

warm_container.SHARES_TO_IMPORT = warm_container.SHARES  # on a busy machine, tests would wait for what others leave
KINDS = ("process", *(("process-confined",) if can_confine() else ()), "process-nice", "docker", "docker-warm", "podman")
"""process-confined: workers of root's agent without root's rights. process-nice: the runtime of examples/plug-ins."""
DOCKER_URL = "TENUTO_TEST_DOCKER_URL"
"""Variable with the address of the tests' Docker daemon."""
SLOTS = tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(2))
SECRET_OF_THE_AGENT = "word-of-the-bus"
OF_A_BATCH_JOB = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "RANK": "1", "WORLD_SIZE": "4", "PYTHONPATH": "/elsewhere"}
"""Variables of an agent that is a task of a batch job."""
TOKEN = "token-of-the-run"


def make_runtime(kind: str, directory: Path, command: tuple[str, ...], gang_network: str = "host") -> Runtime:
    """A runtime of this kind that uses `directory`/agent as the agent's directory. `command`: run by workers in place of the
    harness. `gang_network`: of containers."""
    agent = directory / "agent"
    agent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not kind.startswith("process"):
        return (InWarmImage if kind == "docker-warm" else InImage)(
            AgentNode(AGENT, agent),
            stores_of(str(directory / "shared"), ""),
            url=os.environ[DOCKER_URL],
            slots=SLOTS,
            allowed=read_allowed(",".join(docker_daemon.mounts())),
            limits=ContainerLimits(),
            network="none",
            gang_network=gang_network,
            account=find_account("nobody"),
            command=command,
            packages_directory=Path(os.environ[DOCKER_URL].removeprefix("unix://")).parent / "packages",
            warm_containers_max=2 if kind == "docker-warm" else 0,
        )
    base = {"PATH": os.environ["PATH"], "TENUTO_NATS_PASSWORD": SECRET_OF_THE_AGENT, **OF_A_BATCH_JOB}
    account = confined_root() if kind == "process-confined" else None
    made = _nice() if kind == "process-nice" else ProcessRuntime
    return made(AgentNode(AGENT, agent), directory / "shared", slots=SLOTS, base=base, command=command, account=account)


def _nice() -> type[ProcessRuntime]:
    if str(SOURCE) not in sys.path:
        sys.path.append(str(SOURCE))
    made: type[ProcessRuntime] = import_module("tenuto_example_plugins.runtime").NiceRuntime
    return made


class InImage(DockerRuntime):
    """Runs in the tests' image, whatever the work says."""

    async def prepare(self, work: Work) -> None:
        await super().prepare(in_image(work))

    async def start(self, work: Work) -> Handle:
        return await super().start(in_image(work))


class InWarmImage(InImage):
    """Has a warm container ready for each run that may start in one."""

    ahead = True

    async def prepare(self, work: Work) -> None:
        await super().prepare(work)
        recipe = self.warm.recipe(
            self._facts, in_image(work), *self._prepared[work.allocation_id], self.files(work.allocation_id)
        )
        self.fits = recipe is not None
        if recipe is not None and self.ahead:
            await self.warm.containers.make(recipe)

    async def start(self, work: Work) -> Handle:
        handle = await super().start(work)
        assert not self.ahead or is_warm(handle) == self.fits, "it started cold"
        return handle


def is_warm(handle: Handle) -> bool:
    return "/" in handle


def in_image(work: Work) -> Work:
    environment = work.assignment.config.environment.model_dump() | docker_daemon.environment()
    config = work.assignment.config.model_copy(update={"environment": Environment.model_validate(environment)})
    return replace(work, assignment=work.assignment.model_copy(update={"config": config}))


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def work_of(context: Path, assignment: Assignment | None = None, **secrets: str) -> Work:
    return Work(assignment or make_assignment("0" * 64), context, TOKEN, secrets)


def gang_work_of(context: Path, parts: tuple[AgentSlots, ...]) -> Work:
    """The work of one agent in a gang over several agents, with the secret that the launcher gives to all."""
    update = {"slots": parts, "gang_secret": "word-of-the-gang"}
    return work_of(context, make_assignment("0" * 64).model_copy(update=update))


async def _die(kind: str, directory: Path, context: Path, script: str) -> None:
    runtime = make_runtime(kind, directory, shell(script))
    await runtime.open()
    work = work_of(context)
    await runtime.prepare(work)
    handle = await runtime.start(work) if script else ""
    print(handle, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(_die(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
