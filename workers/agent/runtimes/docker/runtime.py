"""Runs as containers of a Docker daemon on the same node."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenuto.kernel.account import PASSING, Account
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.workers.agent.node import Node
from tenuto.workers.agent.runtimes.docker import boot, packages
from tenuto.workers.agent.runtimes.docker.checkpoints import checkpoint_binds
from tenuto.workers.agent.runtimes.docker.description import WORKER_COMMAND, Facts, Limits, described, job, temporary
from tenuto.workers.agent.runtimes.docker.engine import ALIVE, LABEL_ALLOCATION, LABEL_PACKAGES, Engine, explanation
from tenuto.workers.agent.runtimes.docker.images import Image, Images
from tenuto.workers.agent.runtimes.docker.mounts import Allowed, Bind, user_binds
from tenuto.workers.agent.runtimes.docker.words import out_of_memory, start_problem
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit
from tenuto.workers.agent.runtimes.run_directory import RunDirectories
from tenuto.workers.agent.runtimes.runtime import Exit, Handle, RuntimeUnavailable, StillRunning, Work
from tenuto.workers.endings import SIGNAL_EXIT_BASE

logger = logging.getLogger(__name__)

HANDLE = "container:"
"""Beginning of a handle; the container's id follows."""
LOOK_SECONDS = 2.0
"""Pause between looks at a container if the daemon says nothing: its word of the end usually comes first."""
KILL_SECONDS_MAX = 10.0
"""Longest wait for the end of killed containers: the daemon needs a fraction of a second for one."""
GO_SECONDS_MAX = 30.0
"""Longest wait for a container's first process to take its line; on a busy node its Python starts within a second or two."""
ORDERLY = frozenset({0, 80, 81})
"""Exit codes of workers that left as they were told."""


class Door(UnixEndpoint):
    """The agent's socket in a directory of its own, which containers see: a socket that is mounted alone would be that of this
    agent only, and not of the next one."""

    def prepare(self) -> None:
        super().prepare()
        if self._account is not None:
            self._path.parent.chmod(PASSING)


class DockerRuntime(RunDirectories):
    def __init__(
        self,
        node: Node,
        stores: Stores,
        *,
        url: str,
        slots: tuple[Slot, ...],
        allowed: Allowed,
        limits: Limits,
        network: str,
        account: Account | None = None,
        base: Mapping[str, str] | None = None,
        packages_directory: Path | None = None,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """`url`: of the daemon. `account`: account of the containers' processes, if it is not the agent's own. `base`: variables
        of the agent that workers get. `packages_directory`: for our packages; None: in the agent's directory."""
        self._node, self._stores, self._allowed, self._account = node, stores, allowed, account
        self._endpoint = Door(node.directory / "door", account)
        self._runs, self._packages = node.directory / "containers", packages_directory or node.directory / "packages"
        self._engine = Engine(url, str(node.directory))
        self._images = Images(self._engine)
        self._facts = Facts(
            node, slots, account, account.uid if account else os.geteuid(), account.gid if account else os.getegid(), network,
            limits, Path(), self._endpoint.address, base or {}, tuple(command),
        )  # fmt: skip
        self._prepared: dict[str, tuple[Image, list[Bind]]] = {}
        """Images and mounts of allocations that were prepared, until they start."""
        self._waiting: dict[Handle, tuple[Any, bytes]] = {}
        """Standard inputs of containers that were started and wait for their line, and that line."""

    def has(self, allocation_id: str) -> bool:
        """True if this allocation has files here."""
        return (self._runs / allocation_id).is_dir()

    def files(self, allocation_id: str) -> RunFiles:
        return RunFiles(self._runs / allocation_id, self._account.uid if self._account else None)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self._facts.slots

    @property
    def endpoint(self) -> Door:
        return self._endpoint

    @property
    def names(self) -> tuple[str, ...]:
        return ("docker",)

    @property
    def separate_account(self) -> bool:
        return self._account is not None

    async def open(self) -> None:
        await self._engine.open()
        try:
            self._endpoint.prepare()  # containers see its directory
            self._runs.mkdir(mode=0o700, exist_ok=True)
            if self._account is not None:
                self._runs.chmod(PASSING)
            built = await asyncio.to_thread(packages.build, self._packages)
            in_use = {item["Labels"].get(LABEL_PACKAGES, "") for item in await self._engine.containers()}
            await asyncio.to_thread(packages.prune, self._packages, {*in_use, built.name})
        except OSError as error:
            raise RuntimeUnavailable(f"Images cannot be run: {explanation(error)}.") from error
        self._facts = replace(self._facts, packages=built)

    async def warm_up(self) -> None:
        """Nothing: which images will be wanted is not known."""

    async def close(self) -> None:
        for opened, _ in self._waiting.values():
            _hang_up(opened)
        self._waiting.clear()
        self._engine.close()

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        found: dict[str, list[Handle]] = {}
        for item in await self._engine.containers():
            if item["State"] in ALIVE:
                found.setdefault(item["Labels"].get(LABEL_ALLOCATION, ""), []).append(Handle(HANDLE + item["Id"]))
        return found

    async def sweep(self, live: Collection[str]) -> None:
        for item in await self._engine.containers():
            if item["Labels"].get(LABEL_ALLOCATION) not in live:
                await self._engine.remove(item["Id"])
        for path in list(self._runs.iterdir()) if self._runs.is_dir() else ():
            if path.name not in live:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    async def prepare(self, work: Work) -> None:
        image = await self._images.resolve(work.assignment.config.environment)
        directory = self.files(work.allocation_id).directory
        shutil.rmtree(directory, ignore_errors=True)
        below = directory / "tmp"
        (below / "home").mkdir(mode=0o700, parents=True)
        directory.chmod(0o700)
        door = Path(self._endpoint.address.removeprefix("unix:")).parent
        binds = [
            Bind(str(work.context), str(work.context)),
            Bind(str(directory), str(directory), writable=True),
            Bind(str(below), temporary(work.allocation_id), writable=True),
            Bind(str(door), str(door)),
            Bind(str(self._facts.packages), boot.HOME),
            *await asyncio.to_thread(checkpoint_binds, self._stores, work.assignment, self._account),
        ]
        binds += user_binds(work.assignment.config.environment.mounts, self._allowed, binds)
        if self._account is not None:
            for path in (below / "home", below, directory):  # the run's own last: until then nobody else can put anything into it
                self._account.own(path, 0o700)
        self._prepared[work.allocation_id] = image, binds

    async def start(self, work: Work) -> Handle:
        image, binds = self._prepared.pop(work.allocation_id)
        description = described(self._facts, work, image, binds)
        container = await self._engine.create(self._name(work.allocation_id), description)
        opened: Any = None
        try:
            # Before its start, so that nobody else can be the one who gives it its line.
            opened = await self._engine.attach(container)
            await self._engine.start(container)
        except BaseException as error:
            if opened is not None:
                _hang_up(opened)
            with contextlib.suppress(OSError):
                await self._engine.remove(container)
            if isinstance(error, OSError):
                raise start_problem(image, explanation(error)) from error
            raise
        handle = Handle(HANDLE + container)
        self._waiting[handle] = opened, job(self._facts, work, image, self.files(work.allocation_id))
        return handle

    async def go(self, handle: Handle) -> None:
        opened, line = self._waiting.pop(handle)
        try:
            await asyncio.to_thread(_send, opened, line)
        except OSError as error:  # it was killed meanwhile, which `wait` sees
            logger.info("the container %s does not take its line: %s", handle, error)
        finally:
            _hang_up(opened)

    async def abandon(self, handle: Handle) -> None:
        if (waiting := self._waiting.pop(handle, None)) is not None:
            _hang_up(waiting[0])
            await self._engine.remove(handle.removeprefix(HANDLE))

    async def kill(self, handle: Handle) -> None:
        await self._engine.kill(handle.removeprefix(HANDLE))

    async def kill_all(self, allocation_id: str) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                while True:
                    changed = self._engine.changed.next()
                    alive = [item["Id"] for item in await self._engine.containers(allocation_id) if item["State"] in ALIVE]
                    if not alive:
                        return True
                    for container in alive:
                        await self._kill_one(container)
                    await self._changed(changed, KILL_SECONDS_MAX / 10)
        return False

    async def _kill_one(self, container: str) -> None:
        state = await self._engine.state(container)
        if state is not None and state["Status"] == "created":
            await self._engine.remove(container)
        else:
            await self._engine.kill(container)

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        container = handle.removeprefix(HANDLE)
        while True:
            changed = self._engine.changed.next()
            state = await self._engine.state(container)
            if state is None or state["Status"] in ("exited", "dead"):
                break
            if state["Status"] == "created":  # an earlier agent died before it started it
                await self._engine.remove(container)
                break
            await self._changed(changed, LOOK_SECONDS)
        if not await self.kill_all(allocation_id):
            raise StillRunning("its container cannot be killed; its slots stay taken")
        return await self._exit(allocation_id, container, state or {})

    async def _exit(self, allocation_id: str, container: str, state: Mapping[str, Any]) -> Exit:
        found = await asyncio.to_thread(read_exit, self.files(allocation_id))
        if state.get("OOMKilled") and found.code not in ORDERLY:
            return Exit(SIGNAL_EXIT_BASE + 9, out_of_memory(state["MemoryLimit"]), out_of_memory=True)
        code = state.get("ExitCode", 0)
        if found.code is None and code not in (0, SIGNAL_EXIT_BASE + 9):
            last = (await self._engine.said(container)).splitlines()[-1:] or ["it said nothing"]
            return Exit(EXIT_CODE_WILL_REPEAT, f"The image's python3 could not begin (exit code {code}): {last[0][:500]}")
        return found

    async def clean(self, allocation_id: str) -> None:
        self._prepared.pop(allocation_id, None)
        for item in await self._engine.containers(allocation_id):
            await self._engine.remove(item["Id"])
        await asyncio.to_thread(shutil.rmtree, self.files(allocation_id).directory, ignore_errors=True)

    def _name(self, allocation_id: str) -> str:
        """Name of the container, for people who look with `docker ps`. Agents of other clusters on this node have others."""
        agent = hashlib.sha256(os.fsencode(self._node.directory)).hexdigest()[:8]
        return f"tenuto-{agent}-{allocation_id}"

    async def _changed(self, changed: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()


def _send(opened: Any, line: bytes) -> None:
    """Raises OSError."""
    own = getattr(opened, "_sock", opened)
    own.settimeout(GO_SECONDS_MAX)
    own.sendall(line)


def _hang_up(opened: Any) -> None:
    own = getattr(opened, "_sock", opened)
    with contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_WR)
    if (response := getattr(opened, "_response", None)) is not None:  # it holds the descriptor, too
        response.close()
    opened.close()
    own.close()
