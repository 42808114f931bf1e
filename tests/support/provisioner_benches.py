"""Worlds in which the contract of provisioners is tried: what each adapter starts nodes with, and what happens to these. Agents
are stand-ins: programs that print, wait, and end when they are told."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, RealNode
from tests.support.waiting import until_async

POOL = "gpus"
SECRET = "tenuto-join-a-secret-of-the-tests"
STAND_IN = """
import os, pathlib, signal, sys, time
here, name = pathlib.Path(sys.argv[1]), sys.argv[-1]
assert sys.argv[2:-1] == ["-m", "tenuto.cli.main", "agent", "run", "--name"], sys.argv
def leave(*_):
    print("leaves", flush=True)
    sys.exit(0)
if not (here / f"deaf-{name}").exists():
    signal.signal(signal.SIGTERM, leave)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert os.environ["TENUTO_AGENT_ID"] == name and name in os.environ["TENUTO_JOIN_TOKEN"]
(here / f"began-{name}-{os.getpid()}").touch()
print("first\\nready\\n" + " ".join(sorted(key for key in os.environ if key.startswith(("TENUTO_", "SLURM_")))), flush=True)
time.sleep(0.2)  # a kubelet does not keep the order of two streams
ending = here / f"end-{name}"
while not ending.exists():
    time.sleep(0.05)
print("the agent's last words", file=sys.stderr, flush=True)
sys.exit(int(ending.read_text()))
"""


def order(node_id: str = f"{POOL}-1", node_type: NodeType | None = None, *, secret: str = SECRET) -> Order:
    environment = {
        "TENUTO_AGENT_ID": node_id, "TENUTO_JOIN_TOKEN": f"{secret}-{node_id}", "TENUTO_CPU_SLOTS": "1",
        "TENUTO_AGENT_LABELS": "rack=it's 7",
    }  # fmt: skip
    return Order(node_id, node_type or NodeType(), environment)


class Bench(ABC):
    """One provider, with room for two nodes at once."""

    keeps_logs = True
    """What a node printed that was stopped can be read as long as the node is known."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = f"cluster-{secrets.token_hex(4)}"
        self.stand_in = directory / "python"
        (directory / "stand_in.py").write_text(STAND_IN)
        self.stand_in.write_text(
            f'#!/bin/sh\nif [ "$1" = -m ]; then exec {sys.executable} {directory}/stand_in.py {directory} "$@"; fi\n'
            f'exec {sys.executable} "$@"\n'
        )
        self.stand_in.chmod(0o755)
        self.opened: list[Provisioner] = []

    @abstractmethod
    def make(self, cluster: str, pool: str) -> Provisioner: ...

    @abstractmethod
    def broken(self) -> Provisioner:
        """Its provider cannot be reached."""

    @abstractmethod
    def refused(self) -> Provisioner:
        """Its provider takes no such node."""

    @abstractmethod
    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        """A group that cannot be had whole, but in part."""

    @abstractmethod
    async def start_twice(self, wanted: Order) -> None:
        """Two nodes of one id, as a provider that forgets or answers late brings them about."""

    def provisioner(self, cluster: str = "", pool: str = POOL) -> Provisioner:
        return self.opens(self.make(cluster or self.cluster, pool))

    def opens(self, made: Provisioner) -> Provisioner:
        self.opened.append(made)
        return made

    def end(self, node_id: str, code: int) -> None:
        (self.directory / f"end-{node_id}").write_text(str(code))

    def deaf(self, node_id: str) -> None:
        """The agent of that name will not listen to SIGTERM."""
        (self.directory / f"deaf-{node_id}").touch()

    def began(self, node_id: str) -> list[int]:
        """Process ids of its agents that began."""
        return [int(path.name.rpartition("-")[2]) for path in self.directory.glob(f"began-{node_id}-*")]

    def words_of_others(self) -> Iterator[tuple[str, str]]:
        """What other accounts of the machine can read: command lines, and files in the bench's directories."""
        for process in psutil.process_iter(["cmdline"]):
            yield f"process {process.pid}", " ".join(process.info["cmdline"] or ())
        for path, words in self.files():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mode & 0o077:
                    yield str(path), words

    def files(self) -> Iterator[tuple[Path, str]]:
        """All that are in the bench's directories, and what they say. Nodes that run make and remove some meanwhile."""
        for directory, _, names in os.walk(self.directory):
            for path in (Path(directory, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        yield path, path.read_text(errors="replace")

    async def close(self) -> None:
        for made in self.opened:
            await made.close()
        for path in self.directory.glob("began-*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name.rpartition("-")[2]), signal.SIGKILL)


async def until(provisioner: Provisioner, phase: str, count: int = 1) -> list[RealNode]:
    """The nodes, as soon as exactly `count` are in that phase."""
    nodes = await until_async(provisioner.nodes, lambda nodes: [node.phase for node in nodes].count(phase) == count)
    return [node for node in nodes if node.phase == phase]


async def until_over(provisioner: Provisioner, node: RealNode) -> RealNode | None:
    """The node, as soon as it has ended. None: its provider has forgotten it."""

    async def found() -> list[RealNode]:
        return [item for item in await provisioner.nodes() if item.provider_id == node.provider_id]

    nodes = await until_async(found, lambda nodes: not nodes or nodes[0].phase == "ended")
    return nodes[0] if nodes else None


async def until_printed(provisioner: Provisioner, node: RealNode, words: str) -> str:
    return await until_async(lambda: provisioner.logs(node, 100), lambda said: words in said)


def is_live(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        # One that has no memory any more is exiting, and about to be a zombie.
        return process.status() != psutil.STATUS_ZOMBIE and process.memory_info().rss > 0
    return False
