"""Warm containers of one agent: kept within limits, given to runs, and given back by those that ended in order.

A container in which no run was yet serves any run that its recipe fits. Afterwards it serves only runs of the same experiment. It
is used again only after a run that left as it was told and left no process; all others take their container with them, as a run
that started cold does. After any failure here a run starts cold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

import psutil

from tenuto.kernel.account import Account
from tenuto.workers.agent.runtimes.docker.engine import LABEL_WARM, Engine, explanation
from tenuto.workers.agent.runtimes.docker.mounter import Mounter, lack
from tenuto.workers.agent.runtimes.docker.warm_container import NoRight, NotReady, Recipe, WarmContainer, file_of, remove
from tenuto.workers.agent.runtimes.docker.warm_files import WarmFiles
from tenuto.workers.agent.runtimes.forks import STAND_BY_SECONDS

logger = logging.getLogger(__name__)

IDLE_SECONDS_MAX = 600.0
"""Longest time that a warm container waits for a run: people look at a result, and submit the next experiment."""
HOUSEKEEPING_SECONDS = 10.0
MAKE_AFTER_SECONDS = 2.0
"""Delay between a start and the making of a warm container, so that the run has the processors first."""
FREE_FRACTION_TO_MAKE, FREE_FRACTION_TO_KEEP = 0.2, 0.1
"""Least part of the node's memory that is available for a warm container to be made, and for idle ones to be kept."""
AGAIN_SECONDS = 300.0
"""Pause after a failure that may pass: it costs the node a few seconds of a processor, and runs are only slower without."""
FAILED_MAX = 64
"""Most failed recipes that are remembered."""


class WarmContainers:
    def __init__(self, engine: Engine, directory: Path, containers_max: int, account: Account | None, prefix: str) -> None:
        """`directory`: for their files. `containers_max`: most that wait for a run; 0: none. `prefix`: of their names."""
        self.directory, self._engine, self._max, self._account, self._prefix = directory, engine, containers_max, account, prefix
        self._mounter = Mounter()
        self._idle: list[WarmContainer] = []
        """Containers without a run, the most recently used one last."""
        self._busy: set[WarmContainer] = set()
        self._making: dict[str, asyncio.Task[None]] = {}
        """Containers that are being made, by the key of their recipe."""
        self._making_names: set[str] = set()
        self._failed: dict[str, float] = {}
        """Recipes that did not work, and the time until which no container is made by them."""
        self._unremoved: list[tuple[WarmFiles, str]] = []
        """Containers that the daemon did not remove yet."""
        self._one_at_a_time = asyncio.Semaphore(1)
        self._keeping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[object]] = set()
        self._off = "" if containers_max else "TENUTO_DOCKER_WARM_CONTAINERS_MAX is 0"
        self.starts = 0
        """Number of runs that were started warm."""

    @property
    def on(self) -> bool:
        return not self._off

    def open(self) -> None:
        if self.on and (reason := lack()):
            self._switch_off(reason)
        self.directory.mkdir(mode=0o700, exist_ok=True)

    def _switch_off(self, reason: str) -> None:
        if self.on:
            logger.info("containers start cold: %s", reason)
        self._off = reason

    # What runs ask for.

    def take(self, recipe: Recipe, experiment: int) -> WarmContainer | None:
        """A container for a run, busy from now on: one of its experiment, or one that had no run yet."""
        for wanted in (experiment, None):
            for container in reversed(self._idle):
                if container.experiment == wanted and container.recipe.key == recipe.key:
                    self._idle.remove(container)
                    if container.alive:
                        self._busy.add(container)
                        self.starts += 1
                        asyncio.get_running_loop().call_later(STAND_BY_SECONDS, container.stand_by)
                        return container
                    self.drop(container)
                    break
        return None

    def give_back(self, container: WarmContainer) -> None:
        """Takes back the container of a run that ended in order and whose directories were removed from it."""
        self._busy.discard(container)
        if container.doomed or not self.on:
            self.drop(container)
            return
        self._idle.append(container)
        self._trim()
        self._later(self._check_memory_of(container))

    def drop(self, container: WarmContainer) -> None:
        """Lets a container go that has no run: it ends by itself, and is removed."""
        self._busy.discard(container)
        if container in self._idle:
            self._idle.remove(container)
        container.doomed = True
        container.let_go()
        with contextlib.suppress(OSError):
            container.files.note_run(None)
        self._unremoved.append((container.files, container.container))
        self._later(self._remove())

    def forget(self, container: WarmContainer) -> None:
        """Forgets a container that ends with its run."""
        self._busy.discard(container)
        container.doomed = True
        container.let_go()

    def holds(self, name: str) -> bool:
        """True if that container is this agent's, so that a sweep leaves it alone."""
        known = [container.files.name for container in (*self._idle, *self._busy)]
        return name in known or name in self._making_names

    def sweep(self, kept: Collection[str]) -> None:
        """Removes files of containers of earlier agents that are gone."""
        for path in list(self.directory.iterdir()) if self.directory.is_dir() else ():
            if path.name not in kept and not self.holds(path.name):
                WarmFiles(path).remove()

    # Making and keeping.

    def want(self, recipe: Recipe) -> None:
        """Makes one more container by this recipe, unless there is a free one in which no run was yet."""
        fresh = any(container.experiment is None and container.recipe.key == recipe.key for container in self._idle)
        if not self.on or fresh or recipe.key in self._making or self._failed.get(recipe.key, 0) > time.monotonic():
            return
        task = asyncio.create_task(self._make_later(recipe), name="warm-container")
        self._making[recipe.key] = task
        task.add_done_callback(lambda _: self._making.pop(recipe.key, None))

    async def _make_later(self, recipe: Recipe) -> None:
        await asyncio.sleep(MAKE_AFTER_SECONDS)
        await self.make(recipe)

    async def make(self, recipe: Recipe) -> None:
        """Makes a container now. Errors are only logged: runs then start cold."""
        async with self._one_at_a_time:
            if not self.on or _available() < FREE_FRACTION_TO_MAKE:
                return
            name = secrets.token_hex(6)
            files = WarmFiles(self.directory / name)
            self._making_names.add(name)
            try:
                made = await WarmContainer.make(
                    self._engine, self._mounter, recipe, files, f"{self._prefix}-warm-{name}", self._account
                )
            except BaseException as error:
                self._unremoved.append((files, f"{self._prefix}-warm-{name}"))
                self._later(self._remove())
                if not isinstance(error, OSError | TimeoutError | NotReady | NoRight):
                    raise
                said = (explanation(error) if isinstance(error, OSError) else str(error))[-500:] or type(error).__name__
                if isinstance(error, NoRight):
                    self._switch_off(said)
                else:
                    logger.warning("no warm container of %s: %s", recipe.image, said)
                    self.failed(recipe, for_good=isinstance(error, NotReady))
                return
            finally:
                self._making_names.discard(name)
            self._idle.append(made)
            self._trim()
            if self._keeping is None:
                self._keeping = asyncio.create_task(self._keep(), name="warm-containers")

    def failed(self, recipe: Recipe, *, for_good: bool = False) -> None:
        while len(self._failed) >= FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[recipe.key] = math.inf if for_good else time.monotonic() + AGAIN_SECONDS

    def _trim(self) -> None:
        while len(self._idle) > self._max:
            self.drop(self._idle[0])

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            short = bool(self._idle) and _available() < FREE_FRACTION_TO_KEEP
            for container in list(self._idle):
                if short or not container.alive or time.monotonic() - container.used_at > IDLE_SECONDS_MAX:
                    self.drop(container)
            await self._remove()

    async def _remove(self) -> None:
        waiting, self._unremoved = self._unremoved, []
        for files, container in waiting:
            if not await remove(self._engine, files, container):
                self._unremoved.append((files, container))

    async def _check_memory_of(self, container: WarmContainer) -> None:
        with contextlib.suppress(OSError):
            state = await self._engine.state(container.container)
            if state is not None and state.get("OOMKilled"):
                container.oom_seen = container.doomed = True
                if container in self._idle:
                    self.drop(container)

    def _later(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def remove(self, item: Mapping[str, Any]) -> None:
        """Removes a container, as the daemon lists it, with the files of a warm one. Raises OSError."""
        await self._engine.remove(item["Id"])
        if name := item["Labels"].get(LABEL_WARM):
            await asyncio.to_thread(self.files_of(name).remove)

    def files_of(self, name: str) -> WarmFiles:
        return file_of(self.directory, name)

    async def close(self) -> None:
        """Containers without a run are removed; others go on, and end with it."""
        self._off = "the agent stops"
        tasks = [*self._making.values(), *([self._keeping] if self._keeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for container in list(self._idle):
            self.drop(container)
        for container in list(self._busy):
            container.let_go()
        self._busy.clear()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._mounter.close()


def _available() -> float:
    memory = psutil.virtual_memory()
    return float(memory.available / memory.total)
