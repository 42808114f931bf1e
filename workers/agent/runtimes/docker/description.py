"""Description of a container: what Docker's interface is given to make it, and what its first process is told."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.kernel.account import WORKER_UMASK, Account
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.local_ranks import is_gang, slots_on
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker import boot
from tenuto.workers.agent.runtimes.docker.engine import LABEL_AGENT, LABEL_ALLOCATION, LABEL_PACKAGES
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.ulimits import Ulimit
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.runtime import Work
from tenuto.workers.agent.runtimes.variables import worker_variables
from tenuto.workers.agent.slots import device_variables
from tenuto.workers.launch.token import DESCRIPTOR_VARIABLE, TOKEN_VARIABLE
from tenuto.workers.record.environment import IMAGE_VARIABLE

WORKER_COMMAND = ("python3", "-m", "tenuto.workers.harness")
SUPERVISOR_COMMAND = ("python3", "-m", "tenuto.workers.launch")
PROCESSES_MAX = 16_384
"""Most processes and threads of a container: several hundred per slot are usual, and a loop that forks must not fill the node."""
HOST = "host"
"""Network of the node itself, by its name in Docker."""
LOG_BYTES_MAX = 64 * 1024
"""Size of Docker's own log of a container: only what Python says before the worker starts; its output goes to files."""


@dataclass(frozen=True)
class ContainerLimits:
    """Limits of containers, from the agent's settings. 0: none."""

    memory_bytes_per_slot: int = 0
    cpus_per_slot: float = 0.0
    shm_bytes: int = 2 << 30
    ulimits: tuple[Ulimit, ...] = ()
    read_only: bool = False
    """True: no container may write into its image's files, whether its configuration says so or not."""

    def memory_bytes(self, slots: int) -> int:
        return self.memory_bytes_per_slot * max(1, slots)


@dataclass(frozen=True)
class ContainerFacts:
    """Facts that all containers of one agent share."""

    node: AgentNode
    slots: tuple[Slot, ...]
    account: Account | None
    """Account of the containers' processes. None: the agent's own."""
    uid: int
    gid: int
    network: str
    limits: ContainerLimits
    packages: Path
    """Directory with our own packages, of this version."""
    address: str
    """Address of the agent, as gRPC names it."""
    base: Mapping[str, str]
    """Variables of the agent that its workers get: the mark of a laptop's cluster."""
    command: tuple[str, ...] = WORKER_COMMAND
    gang_network: str = HOST
    """Network of gangs over several agents."""

    @property
    def is_harness(self) -> bool:
        """True: workers run our own harness."""
        return self.command == WORKER_COMMAND

    def held(self, assignment: Assignment) -> tuple[Slot, ...]:
        numbers = set(slots_on(assignment, self.node.agent_id))
        return tuple(slot for slot in self.slots if slot.slot_id in numbers)


def described(facts: ContainerFacts, work: Work, image: Image, binds: Sequence[Bind]) -> dict[str, Any]:
    """The container, without anything that must not lie on the daemon's disk."""
    held = facts.held(work.assignment)
    memory = facts.limits.memory_bytes(len(held))
    gpus = [slot.uuid or str(slot.slot_id) for slot in held if slot.kind == "cuda"]
    host: dict[str, Any] = {
        "Mounts": [bind.described() for bind in binds],
        "NetworkMode": network_of(facts, work.assignment),
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PROCESSES_MAX,
        "ShmSize": facts.limits.shm_bytes,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": str(LOG_BYTES_MAX), "max-file": "1"}},
    }
    if memory:
        host |= {"Memory": memory, "MemorySwap": memory}  # without swap, in which a training process would only crawl
    if facts.limits.ulimits:
        host["Ulimits"] = [limit.described() for limit in facts.limits.ulimits]
    if read_only(facts, work):
        host["ReadonlyRootfs"] = True
    if facts.limits.cpus_per_slot:
        host["NanoCpus"] = round(facts.limits.cpus_per_slot * max(1, len(held)) * 1e9)
    if gpus:
        host["DeviceRequests"] = [{"DeviceIDs": gpus, "Capabilities": [["gpu"]]}]
    return {
        "Image": image.image_id,
        "Entrypoint": ["python3", "-I", f"{boot.HOME}/boot.py"],
        "Cmd": [],
        "User": f"{facts.uid}:{facts.gid}",
        "WorkingDir": "/",
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "Labels": {
            LABEL_AGENT: str(facts.node.directory),
            LABEL_ALLOCATION: work.allocation_id,
            LABEL_PACKAGES: facts.packages.name,
        },
        "HostConfig": host,
    }


def names_begin(directory: Path) -> str:
    """Begin of the names of an agent's containers, for people who look with `docker ps`. Agents of other clusters on the node
    have others. `directory`: the agent's."""
    return f"tenuto-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:8]}"


def network_of(facts: ContainerFacts, assignment: Assignment) -> str:
    """Ranks in one container need no network for each other."""
    return facts.gang_network if len(assignment.slots) > 1 else facts.network


def read_only(facts: ContainerFacts, work: Work) -> bool:
    """True: the container's root is read-only, and it needs a /tmp of the run."""
    return facts.limits.read_only or work.assignment.config.environment.read_only


def temporary(allocation_id: str) -> str:
    """The run's temporary directory in its container: short, because programs make sockets there."""
    return f"/tmp/tenuto-{allocation_id}"


def environment_of(facts: ContainerFacts, work: Work, image: Image, files: RunFiles, place: str) -> dict[str, str]:
    """Variables of a run's worker, its token among them, which come on top of those of the image. `place`: the run's temporary
    directory in its container."""
    assignment = work.assignment
    held = facts.held(assignment)
    gang = is_gang(assignment)
    devices = device_variables(held[:1] if gang else held)
    home = {"HOME": f"{place}/home", "USER": "tenuto", "LOGNAME": "tenuto", "TMPDIR": place, "PYTHONHASHSEED": "0"}
    environment = home | dict(facts.base) | devices | assignment.config.environment.variables | dict(work.secrets)
    if any(slot.kind == "cuda" for slot in held):
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # a container has only its own devices; ranks choose among them
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.uuid or str(slot.slot_id) for slot in held)
    else:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    told = worker_variables(
        work,
        facts.node,
        address=facts.address,
        directory=str(files.directory),
        error_file=str(files.error),
        command=facts.command,
    )
    return environment | told | {IMAGE_VARIABLE: image.resolved}


def job(facts: ContainerFacts, work: Work, image: Image, files: RunFiles) -> bytes:
    """The line that the first process waits for."""
    environment = environment_of(facts, work, image, files, temporary(work.allocation_id))
    line = {
        "token": environment.pop(TOKEN_VARIABLE),
        "environment": environment,
        "token_descriptor": DESCRIPTOR_VARIABLE,
        "command": SUPERVISOR_COMMAND if is_gang(work.assignment) else facts.command,
        "directory": str(work.context),
        "stdout": str(files.stdout),
        "stderr": str(files.stderr),
        "exit_file": str(files.exit),
        "error_file": str(files.error),
        "umask": WORKER_UMASK if facts.account else 0o022,
        "image": image.name,
        "check": True,
    }
    return json.dumps(line).encode() + b"\n"
