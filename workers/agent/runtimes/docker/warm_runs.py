"""Runs in warm containers, for the runtime: each call says if the run is one, and the runtime does the rest as for a cold one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.ids import experiment_of
from tenuto.workers.agent.runtimes.docker.description import ContainerFacts
from tenuto.workers.agent.runtimes.docker.images import Image
from tenuto.workers.agent.runtimes.docker.mounts import Bind
from tenuto.workers.agent.runtimes.docker.warm import WarmContainers
from tenuto.workers.agent.runtimes.docker.warm_container import Recipe, WarmContainer
from tenuto.workers.agent.runtimes.docker.warm_description import forked_job, own_binds, recipe_of
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.forks import ForkedLeader, FrameworkGuesses
from tenuto.workers.agent.runtimes.runtime import Handle, Work
from tenuto.workers.endings import LEFT_IN_ORDER, Ending
from tenuto.workers.harness.frameworks import NONE

logger = logging.getLogger(__name__)

HANDLE = "container:"
"""Beginning of a handle; the container's id follows, and for a warm one its name and the allocation: ID/NAME/ALLOCATION."""
REUSED_AFTER = LEFT_IN_ORDER | {"invalid_hyperparameters"}
"""Endings, as the worker told them, after which the container serves the next run. An exit code would not do: any program may end
with any."""


def parts_of(handle: Handle) -> tuple[str, str, str]:
    """(container, name of a warm one, allocation of the run in it)."""
    container, _, rest = handle.removeprefix(HANDLE).partition("/")
    name, _, allocation_id = rest.partition("/")
    return container, name, allocation_id


@dataclass
class WarmRun:
    container: WarmContainer
    forked: ForkedLeader
    told: Ending | None = None
    """Ending that its worker announced; None if it announced none."""
    ended: asyncio.Task[bool] | None = None
    """Wait for its end, which returns True if it ended in order and its container is free. None: it had no go yet."""


class WarmRuns:
    def __init__(self, containers: WarmContainers) -> None:
        self.containers = containers
        self._frameworks = FrameworkGuesses()
        self._runs: dict[Handle, WarmRun] = {}

    def recipe(
        self, facts: ContainerFacts, work: Work, image: Image, own: Sequence[Bind], fixed: Sequence[Bind], files: RunFiles
    ) -> Recipe | None:
        """Recipe of a container for the run; None if it starts cold."""
        if not self.containers.on:
            return None
        framework = NONE  # for a program that is not ours
        if facts.is_harness:
            config = work.assignment.config
            framework = self._frameworks.of(config.entrypoint, work.context, config.environment.variables)
        return recipe_of(facts, work, image, own, fixed, files, framework)

    async def start(
        self, facts: ContainerFacts, work: Work, image: Image, own: Sequence[Bind], fixed: Sequence[Bind], files: RunFiles
    ) -> Handle | None:
        """Starts the run in a warm container. None if it has to start cold."""
        recipe = self.recipe(facts, work, image, own, fixed, files)
        if recipe is None:
            return None
        experiment = experiment_of(work.allocation_id)
        container = self.containers.take(recipe, experiment)
        if container is None:
            return None
        fresh = container.experiment is None
        job = forked_job(facts, work, image, files)
        try:
            forked = await container.begin(work.allocation_id, experiment, own_binds(work, own), job)
        except BaseException as error:
            self.containers.drop(container)
            self.containers.failed(recipe)
            if not isinstance(error, OSError | TimeoutError | ValueError):
                raise
            logger.warning("a run starts cold, as its warm container failed (%s)", str(error) or type(error).__name__)
            return None
        if fresh:
            self.containers.want(recipe)
        handle = Handle(f"{HANDLE}{container.container}/{container.files.name}/{work.allocation_id}")
        self._runs[handle] = WarmRun(container, forked)
        return handle

    def started_cold(
        self, facts: ContainerFacts, work: Work, image: Image, own: Sequence[Bind], fixed: Sequence[Bind], files: RunFiles
    ) -> None:
        """Has a warm container made for the next run like this one."""
        if (recipe := self.recipe(facts, work, image, own, fixed, files)) is not None:
            self.containers.want(recipe)

    def go(self, handle: Handle) -> bool:
        run = self._runs.get(handle)
        if run is None:
            return False
        run.forked.go()
        run.ended = asyncio.create_task(self._end(run), name=f"warm-{handle}")
        return True

    async def _end(self, run: WarmRun) -> bool:
        reported = await run.forked.wait_ended()
        container = run.container
        with contextlib.suppress(OSError):
            if reported and run.forked.left_nothing and run.told in REUSED_AFTER and not container.doomed:
                await container.release()
                self.containers.give_back(container)
                return True
        self.containers.forget(container)
        return False

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        """Notes the ending that the worker of a run announces before it ends; the first one counts."""
        for handle, run in self._runs.items():
            if handle.endswith(f"/{allocation_id}"):
                run.told = run.told or ending

    def abandon(self, handle: Handle) -> bool:
        run = self._runs.pop(handle, None)
        if run is None:
            return False
        run.forked.abandon()
        run.container.files.note_run(None)
        self.containers.drop(run.container)
        return True

    def doom(self, container_id: str) -> None:
        """Keeps other runs out of a container from now on. Called before the container is killed."""
        for run in self._runs.values():
            if run.container.container == container_id:
                run.container.doomed = True

    async def ended(self, handle: Handle) -> bool | None:
        """Waits for the end of a run that this agent started. True: nothing of it is left, and its container is no longer its.
        False: its container has to be killed. None: it is no such run."""
        run = self._runs.get(handle)
        if run is None or run.ended is None:
            return None
        return await asyncio.shield(run.ended)

    def forget(self, allocation_id: str) -> None:
        for handle in [handle for handle in self._runs if handle.endswith(f"/{allocation_id}")]:
            self._runs.pop(handle)

    def oom_seen(self, container_id: str) -> bool:
        """True: an earlier run of that container came near its limit."""
        return any(run.container.container == container_id and run.container.oom_seen for run in self._runs.values())

    def holder(self, name: str) -> str | None:
        """Allocation whose run is in the warm container of this name; None if it has none."""
        return self.containers.files_of(name).run

    async def close(self) -> None:
        for run in self._runs.values():
            if run.ended is None:
                run.forked.abandon()
            else:
                run.ended.cancel()
        self._runs.clear()
        await self.containers.close()
