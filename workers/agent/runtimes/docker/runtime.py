"""Runs as containers of a Docker daemon on the same node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenuto.kernel.account import PASSING, Account
from tenuto.kernel.storage.stores import Stores
from tenuto.kernel.tree_removal import remove_tree
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.workers.agent.change_signal import within
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.docker import boot, packages
from tenuto.workers.agent.runtimes.docker.checkpoints import checkpoint_binds
from tenuto.workers.agent.runtimes.docker.container_errors import could_not_begin, out_of_memory, start_problem
from tenuto.workers.agent.runtimes.docker.description import (
    WORKER_COMMAND,
    ContainerFacts,
    ContainerLimits,
    described,
    job,
    names_begin,
    read_only,
    temporary,
)
from tenuto.workers.agent.runtimes.docker.door import ContainerSocket
from tenuto.workers.agent.runtimes.docker.engine import ALIVE, LABEL_ALLOCATION, LABEL_PACKAGES, LABEL_WARM, Engine, explanation
from tenuto.workers.agent.runtimes.docker.images import Image, Images
from tenuto.workers.agent.runtimes.docker.mounts import Allowed, Bind, user_binds
from tenuto.workers.agent.runtimes.docker.networks import check_network, facts_on_network
from tenuto.workers.agent.runtimes.docker.standard_input import hang_up, send
from tenuto.workers.agent.runtimes.docker.warm import WarmContainers
from tenuto.workers.agent.runtimes.docker.warm_runs import HANDLE, WarmRuns, parts_of
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit
from tenuto.workers.agent.runtimes.run_directory import RunDirectories
from tenuto.workers.agent.runtimes.runtime import Exit, Handle, RuntimeUnavailable, StillRunning, Work
from tenuto.workers.endings import SIGNAL_EXIT_BASE, Ending

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Pause between looks at a container if the daemon says nothing: its word of the end usually comes first."""
KILL_SECONDS_MAX = 10.0
"""Longest wait for the end of killed containers: the daemon needs a fraction of a second for one."""


class DockerRuntime(RunDirectories):
    def __init__(
        self,
        node: AgentNode,
        stores: Stores,
        *,
        url: str,
        slots: tuple[Slot, ...],
        allowed: Allowed,
        limits: ContainerLimits,
        network: str,
        gang_network: str = "host",
        account: Account | None = None,
        base: Mapping[str, str] | None = None,
        packages_directory: Path | None = None,
        command: Sequence[str] = WORKER_COMMAND,
        warm_containers_max: int = 0,
        credentials_file: str = "",
        image_ahead: str = "",
    ) -> None:
        """`url`: of the daemon. `account`: of the containers' processes, if not the agent's own. `base`: variables of the agent
        that workers get. `packages_directory`: None: in the agent's directory. `warm_containers_max`: 0 starts all cold.
        `credentials_file`: the operator's, for registries. `image_ahead`: pulled by `warm_up`. Empty: none."""
        self._node, self._stores, self._allowed, self._account = node, stores, allowed, account
        self._endpoint = ContainerSocket(node.directory / "door", account)
        self._runs, self._packages = node.directory / "containers", packages_directory or node.directory / "packages"
        self._engine = Engine(url, str(node.directory))
        self._images = Images(self._engine, node.directory / "images.json", credentials_file, image_ahead)
        self._facts = ContainerFacts(
            node, slots, account, account.uid if account else os.geteuid(), account.gid if account else os.getegid(), network,
            limits, Path(), self._endpoint.address, base or {}, tuple(command), gang_network,
        )  # fmt: skip
        self.warm = WarmRuns(
            WarmContainers(self._engine, node.directory / "warm", warm_containers_max, account, names_begin(node.directory))
        )
        self._prepared: dict[str, tuple[Image, list[Bind], list[Bind]]] = {}
        """Images, mounts of the run, and mounts like those of others, of allocations that were prepared, until they start."""
        self._waiting: dict[Handle, tuple[Any, bytes]] = {}
        """Standard inputs of containers that wait for their line, and that line."""
        self._told: set[str] = set()
        """Containers that were sent their line."""

    def files(self, allocation_id: str) -> RunFiles:
        return RunFiles(self._runs / allocation_id, self._account.uid if self._account else None)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self._facts.slots

    @property
    def endpoint(self) -> ContainerSocket:
        return self._endpoint

    @property
    def names(self) -> tuple[str, ...]:
        return () if self._engine.away else ("docker",)

    @property
    def runs_images(self) -> bool:
        return not self._engine.away

    def takes(self, work: Work) -> bool:
        return work.assignment.config.environment.image is not None

    def owns(self, handle: Handle) -> bool:
        return handle.startswith(HANDLE)

    @property
    def separate_account(self) -> bool:
        return self._account is not None

    async def open(self) -> None:
        # One that was there before may be away for a while: processes run meanwhile, and its containers are looked for later.
        await self._engine.open(required=not self._runs.is_dir())
        if not self._engine.away:
            await check_network(self._engine, self._facts.gang_network)
        try:
            self._endpoint.prepare()  # containers see its directory
            self._runs.mkdir(mode=0o700, exist_ok=True)
            if self._account is not None:
                self._runs.chmod(PASSING)
            built = await asyncio.to_thread(packages.build, self._packages)
            if not self._engine.away:
                in_use = {item["Labels"].get(LABEL_PACKAGES, "") for item in await self._engine.containers()}
                await asyncio.to_thread(packages.prune, self._packages, {*in_use, built.name})
            self.warm.containers.open()
        except OSError as error:
            raise RuntimeUnavailable(f"Images cannot be run: {explanation(error)}.") from error
        self._facts = replace(self._facts, packages=built)
        self._engine.keep_tidy(self._tidy)

    async def warm_up(self) -> None:
        self._images.pull_ahead()

    async def close(self) -> None:
        while self._waiting:
            hang_up(self._waiting.popitem()[1][0])
        await self._images.close()
        await self.warm.close()
        self._endpoint.forsake(in_use=await self._engine.has_containers())
        self._engine.close()

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        found: dict[str, list[Handle]] = {}
        # While the daemon does not answer, none is found; `_tidy` later removes those without a run.
        for item in () if self._engine.away else await self._engine.containers():
            allocation_id = self._holder(item)
            if item["State"] in ALIVE and allocation_id is not None:
                name = item["Labels"].get(LABEL_WARM)
                handle = HANDLE + item["Id"] + (f"/{name}/{allocation_id}" if name else "")
                found.setdefault(allocation_id, []).append(Handle(handle))
        return found

    def _holder(self, item: Mapping[str, Any]) -> str | None:
        """Allocation of a container; None: it is a warm one without a run."""
        name = item["Labels"].get(LABEL_WARM)
        return self.warm.holder(name) if name else item["Labels"].get(LABEL_ALLOCATION, "")

    async def _containers_of(self, allocation_id: str) -> list[Mapping[str, Any]]:
        return [item for item in await self._engine.containers() if self._holder(item) == allocation_id]

    async def sweep(self, live: Collection[str]) -> None:
        if not self._engine.away:
            await self._sweep_containers(live)
        for path in list(self._runs.iterdir()) if self._runs.is_dir() else ():
            if path.name not in live:
                await asyncio.to_thread(remove_tree, path)

    async def _tidy(self) -> None:
        """Removes containers of allocations without a directory, which is there from before the start until after the end."""
        for item in await self._engine.containers():
            allocation_id, name = self._holder(item), item["Labels"].get(LABEL_WARM)
            if name and self.warm.containers.holds(name):
                continue
            if (name and allocation_id is None) or (allocation_id and not self.has(allocation_id)):
                logger.warning("removing a container of allocation %s, which this agent no longer has", allocation_id or "none")
                await self._removed(item)

    async def _sweep_containers(self, live: Collection[str]) -> None:
        kept = set()
        for item in await self._engine.containers():
            name = item["Labels"].get(LABEL_WARM)
            if self._holder(item) in live or (name and self.warm.containers.holds(name)) or not await self._removed(item):
                kept.add(name)
        await asyncio.to_thread(self.warm.containers.sweep, kept)

    async def _removed(self, item: Mapping[str, Any]) -> bool:
        """Removes a container. False if the daemon could not: `_tidy` tries again; neither the other containers nor the agent
        wait for this one."""
        try:
            await self.warm.containers.remove(item)
        except OSError as error:
            logger.warning("the container %s, which no run has, cannot be removed: %s", item["Id"][:12], explanation(error))
            return False
        return True

    async def prepare(self, work: Work) -> None:
        image = await self._images.resolve(work.assignment.config.environment, work.registry_auth)
        directory = self.files(work.allocation_id).directory
        remove_tree(directory)
        below = directory / "tmp"
        (below / "home").mkdir(mode=0o700, parents=True)
        (directory / "root-tmp").mkdir(mode=0o700)
        directory.chmod(0o700)
        door = Path(self._endpoint.address.removeprefix("unix:")).parent
        own = [
            Bind(str(work.context), str(work.context)),
            Bind(str(directory), str(directory), writable=True),
            Bind(str(below), temporary(work.allocation_id), writable=True),
            *await asyncio.to_thread(checkpoint_binds, self._stores, work.assignment, self._account),
        ]
        fixed = [Bind(str(door), str(door)), Bind(str(self._facts.packages), boot.HOME)]
        allowed_by_pool = work.assignment.mounts_allowed
        fixed += user_binds(work.assignment.config.environment.mounts, self._allowed, [*own, *fixed], allowed_by_pool)
        if read_only(self._facts, work):  # after the others were judged: what users mount may be below it
            own.append(Bind(str(directory / "root-tmp"), "/tmp", writable=True))
        if self._account is not None:
            # The run's own last: until then no other process can put anything into it.
            for path in (below / "home", below, directory / "root-tmp", directory):
                self._account.own(path, 0o700)
        self._prepared[work.allocation_id] = image, own, fixed

    async def start(self, work: Work) -> Handle:
        image, own, fixed = self._prepared.pop(work.allocation_id)
        warm = await self.warm.start(self._facts, work, image, own, fixed, self.files(work.allocation_id))
        if warm is not None:
            return warm
        description = described(self._facts, work, image, [*own, *fixed])
        container = await self._engine.create(f"{names_begin(self._node.directory)}-{work.allocation_id}", description)
        opened: Any = None
        try:
            # Before its start, so that no other process can give it its line.
            opened = await self._engine.attach(container)
            await self._engine.start(container)
            facts = await facts_on_network(self._facts, self._engine, container, work.assignment)
        except BaseException as error:
            if opened is not None:
                hang_up(opened)
            with contextlib.suppress(OSError):
                await self._engine.remove(container)
            if isinstance(error, OSError):
                raise start_problem(image, explanation(error)) from error
            raise
        handle = Handle(HANDLE + container)
        self.warm.started_cold(self._facts, work, image, own, fixed, self.files(work.allocation_id))
        self._waiting[handle] = opened, job(facts, work, image, self.files(work.allocation_id))
        return handle

    async def go(self, handle: Handle) -> None:
        if self.warm.go(handle):
            return
        opened, line = self._waiting.pop(handle)
        try:
            await asyncio.to_thread(send, opened, line)
            self._told.add(handle.removeprefix(HANDLE))
        except OSError as error:  # it was killed meanwhile, which `wait` sees
            logger.info("the container %s does not take its line: %s", handle, error)
        finally:
            hang_up(opened)

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        self.warm.note_told(allocation_id, ending)

    async def abandon(self, handle: Handle) -> None:
        if self.warm.abandon(handle):
            return
        if (waiting := self._waiting.pop(handle, None)) is not None:
            hang_up(waiting[0])
            await self._engine.remove(handle.removeprefix(HANDLE))

    async def kill(self, handle: Handle) -> None:
        container, name, allocation_id = parts_of(handle)
        if name and self.warm.holder(name) != allocation_id:
            return  # its run has ended, and another one may be in it
        self.warm.doom(container)
        await self._engine.kill(container)

    async def kill_all(self, allocation_id: str) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_SECONDS_MAX):
                while True:
                    changed = self._engine.changed.next()
                    alive = [item["Id"] for item in await self._containers_of(allocation_id) if item["State"] in ALIVE]
                    if not alive:
                        return True
                    for container in alive:
                        await self._kill_one(container)
                    await within(changed, KILL_SECONDS_MAX / 10)
        return False

    async def _kill_one(self, container: str) -> None:
        self.warm.doom(container)
        state = await self._engine.state(container)
        created = state is not None and state["Status"] == "created"
        await (self._engine.remove if created else self._engine.kill)(container)

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        container, name, _ = parts_of(handle)
        if name:
            in_order = await self.warm.ended(handle)
            if in_order or self.warm.holder(name) != allocation_id:
                return await asyncio.to_thread(read_exit, self.files(allocation_id))
            if in_order is False:
                with contextlib.suppress(OSError):  # unreachable daemon; without agent and run, the container ends by itself
                    await self._engine.kill(container)
        while True:
            changed = self._engine.changed.next()
            state = await self._engine.state(container, patient=True)
            if state is None or state["Status"] in ("exited", "dead"):
                break
            if state["Status"] == "created":  # an earlier agent died before it started it
                await self._engine.remove(container)
                break
            await within(changed, LOOK_SECONDS)
        if not await self.kill_all(allocation_id):
            raise StillRunning("its container cannot be killed; its slots stay taken")
        return await self._exit(allocation_id, container, state or {})

    async def _exit(self, allocation_id: str, container: str, state: Mapping[str, Any]) -> Exit:
        found = await asyncio.to_thread(read_exit, self.files(allocation_id))
        if state.get("OOMKilled") and not self.warm.oom_seen(container):
            return found.for_memory(out_of_memory(state["MemoryLimit"]))
        code = state.get("ExitCode", 0)
        if found.code is None and code != SIGNAL_EXIT_BASE + 9 and (code or container in self._told):
            said = could_not_begin(code, await self._engine.said(container))
            # With 0 it may have been a daemon that died on the way of the line: tried again, as after an error of the code.
            return Exit(EXIT_CODE_WILL_REPEAT, said, cause="will_repeat") if code else Exit(1, said)
        return found

    async def clean(self, allocation_id: str) -> None:
        self._prepared.pop(allocation_id, None)
        for item in await self._containers_of(allocation_id):
            await self.warm.containers.remove(item)
            self._told.discard(item["Id"])
        self.warm.forget(allocation_id)
        await asyncio.to_thread(remove_tree, self.files(allocation_id).directory)
