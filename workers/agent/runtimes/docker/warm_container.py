"""One warm container: made before a run needs it, it holds a process that has imported the framework and forks workers
(harness/zygote.py). At most one run is in it at a time; directories of that run are brought in, and taken away at its end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.kernel.account import Account
from tenuto.workers.agent.runtimes.docker.engine import LABEL_WARM, Engine
from tenuto.workers.agent.runtimes.docker.mounter import Mounter
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.warm_files import PLACE, WarmFiles
from tenuto.workers.agent.runtimes.forks import ForkedLeader, Forks
from tenuto.workers.harness.fork_orders import ForkOrder

CONNECT_SECONDS_MAX = 60.0
"""Longest way from the start of a container to the first word of its first process: a Python's start."""
READY_SECONDS_MAX = 300.0
"""Longest import of the framework, for which a container gets what others leave of the processors."""
SHARES_TO_IMPORT, SHARES = 2, 1024
"""Parts of the processors while a container imports the framework (the least that there is), and later (Docker's usual ones)."""
_CREDENTIALS = struct.Struct("iII")


class NotReady(Exception):
    """A container whose process cannot fork workers. Another one of the same recipe would fail, too."""


class NoRight(Exception):
    """The agent cannot bring directories into containers on this node."""


@dataclass(frozen=True)
class Recipe:
    """Description of a warm container: everything that its runs must have in common."""

    description: Mapping[str, Any]
    """Description for Docker, without the mounts that only this container has."""
    places: tuple[str, ...]
    """Directories of the container in which those of runs are mounted."""
    line: bytes
    """Line that its first process reads from the agent."""
    image: str

    @property
    def key(self) -> str:
        digest = hashlib.sha256(json.dumps([self.description, self.places], sort_keys=True).encode())
        digest.update(self.line)
        return digest.hexdigest()


class WarmContainer:
    def __init__(self, recipe: Recipe, files: WarmFiles, container: str, pidfd: int, forks: Forks, mounter: Mounter) -> None:
        self.recipe, self.files, self.container, self._mounter = recipe, files, container, mounter
        self._pidfd, self._forks = pidfd, forks
        self.experiment: int | None = None
        """Experiment of the runs that were in it; None: there was none."""
        self.doomed = False
        """True: the container ends with its present run."""
        self.oom_seen = False
        """True: the kernel killed a process of an earlier run, which nevertheless went on to its end."""
        self.used_at = time.monotonic()
        self._attached: tuple[str, ...] = ()

    @classmethod
    async def make(
        cls, engine: Engine, mounter: Mounter, recipe: Recipe, files: WarmFiles, name: str, account: Account | None
    ) -> WarmContainer:
        """A container that can fork workers. Raises OSError, TimeoutError, NotReady and NoRight; the caller then
        removes whatever is left."""
        own = await asyncio.to_thread(files.make, recipe.places, account)
        host = recipe.description["HostConfig"]
        mounts = [*host["Mounts"], *(bind.described() for bind in own)]
        labels = {**recipe.description["Labels"], LABEL_WARM: files.name}
        description = {
            **recipe.description,
            "Labels": labels,
            "HostConfig": {**host, "Mounts": mounts, "CpuShares": SHARES_TO_IMPORT if engine.changes_shares else SHARES},
        }
        container = await engine.create(name, description)
        with files.listening(account) as listening:
            await engine.start(container)
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                channel, _ = await asyncio.get_running_loop().sock_accept(listening)
        pidfd = -1
        forks: Forks | None = None
        try:
            pidfd = await _first_process(engine, container, channel)
            await _try_out(mounter, pidfd, own)
            channel.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(channel, recipe.line)
            began = time.monotonic()
            forks = Forks(channel, READY_SECONDS_MAX)
            if not await forks.ready():
                if time.monotonic() - began >= READY_SECONDS_MAX:  # the processors were others' all the time
                    raise TimeoutError(f"the framework was not imported within {READY_SECONDS_MAX:.0f} s")
                raise NotReady(await engine.said(container))
            if engine.changes_shares and not await engine.share_processors(container, SHARES):
                raise OSError("the daemon changes no share of the processors; the next one has its own from the start")
            return cls(recipe, files, container, pidfd, forks, mounter)
        except BaseException:
            channel.close() if forks is None else forks.let_go()
            if pidfd >= 0:
                os.close(pidfd)
            raise

    @property
    def alive(self) -> bool:
        return self._pidfd >= 0 and not select.select([self._pidfd], [], [], 0)[0]

    async def begin(self, allocation_id: str, experiment: int, binds: Sequence[Bind], job: ForkOrder) -> ForkedLeader:
        """A worker that waits for its go. Raises OSError and TimeoutError; then the container is of no use any more."""
        self.experiment = experiment
        self.files.note_run(allocation_id)  # first, so that an agent that finds the container knows what may be in it
        targets = tuple(bind.target for bind in binds)
        if not self.files.prepare_targets(self.recipe.places, targets):
            raise OSError("a directory of the run has no place in its warm container")
        self._attached = targets
        await self._mounter.change(self._pidfd, attach=binds)
        control, _ = await self._forks.hand_over(job)
        return ForkedLeader(control)

    async def release(self) -> None:
        """Takes the directories of an ended run away. Raises OSError; then the container is of no use any more."""
        await self._mounter.change(self._pidfd, detach=self._attached)
        self._attached = ()
        self.files.clear_places()
        self.files.note_run(None)
        self.used_at = time.monotonic()

    def stand_by(self) -> None:
        if self._pidfd >= 0:
            self._forks.stand_by()

    def let_go(self) -> None:
        """Ends the connection: without a run, the container ends, too."""
        self._forks.let_go()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


async def _try_out(mounter: Mounter, pidfd: int, own: Sequence[Bind]) -> None:
    """Brings a directory in and takes it away, as for each run later. Raises NoRight."""
    [temporary] = [bind for bind in own if bind.target == PLACE]
    try:
        await mounter.change(pidfd, attach=[temporary])
        await mounter.change(pidfd, detach=[PLACE])
    except OSError as error:
        raise NoRight(str(error)) from error


async def _first_process(engine: Engine, container: str, channel: socket.socket) -> int:
    """Descriptor of the process at the other end, which must be the container's first. Raises OSError
    and NoRight."""
    raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    state = await engine.state(container)
    if not pid or state is None or state["Pid"] != pid:
        raise NoRight("the daemon's processes are not seen from here, so the agent cannot bring directories into a container")
    return os.pidfd_open(pid)


async def remove(engine: Engine, files: WarmFiles, container: str) -> bool:
    """Removes a warm container and its files. False if the daemon failed, and the caller must try again."""
    try:
        await engine.remove(container)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        await asyncio.to_thread(files.remove)
    return True


def file_of(directory: Path, name: str) -> WarmFiles:
    """Files of the warm container of this name. The name is from a label, so parts of it that lead to other directories are
    dropped."""
    return WarmFiles(directory / Path(name).name)
