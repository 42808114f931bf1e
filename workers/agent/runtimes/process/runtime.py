"""Runs workers as processes of the agent's own machine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tenuto.kernel.account import PASSING, Account, NoAccount, check_account, hand_over
from tenuto.kernel.tree_removal import remove_tree
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.text import NAME_SHOWN_MAX, visible
from tenuto.workers.agent.local_ranks import is_gang, slots_on
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tenuto.workers.agent.runtimes.error_sentences import out_of_memory
from tenuto.workers.agent.runtimes.files import RunFiles, read_exit
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.cgroups import Cgroups, ProcessLimits
from tenuto.workers.agent.runtimes.process.environment import (
    SUPERVISOR_COMMAND,
    WORKER_COMMAND,
    WorkerHost,
    common_environment,
    worker_environment,
)
from tenuto.workers.agent.runtimes.process.inheriting import SETTING, inherited, left_out
from tenuto.workers.agent.runtimes.process.kept import KeptWorkers, Likeness
from tenuto.workers.agent.runtimes.process.processes import Identity, Spawned
from tenuto.workers.agent.runtimes.process.scratch import Scratch
from tenuto.workers.agent.runtimes.process.warm import WarmPool, WarmSpawned, order
from tenuto.workers.agent.runtimes.run_directory import RunDirectories
from tenuto.workers.agent.runtimes.runtime import (
    Exit,
    Handle,
    RuntimeUnavailable,
    StillRunning,
    Work,
)
from tenuto.workers.endings import Ending
from tenuto.workers.harness.orphans import is_cleaner

logger = logging.getLogger(__name__)
KILL_AGAIN_SECONDS = 0.5
"""Pause after a kill for which the agent had no file descriptor left."""
NAMES_TOLD_MAX = 200
"""Most names of variables in the log: an agent in a batch job has some eighty that its workers do not get."""


class ProcessRuntime(RunDirectories):
    def __init__(
        self,
        node: AgentNode,
        shared: Path | None,
        *,
        slots: tuple[Slot, ...],
        base: Mapping[str, str],
        inherits: Collection[str] = (),
        command: Sequence[str] = WORKER_COMMAND,
        account: Account | None = None,
        warm_environments_max: int = 0,
        limits: ProcessLimits | None = None,
        limits_required: bool = False,
        image: str = "",
    ) -> None:
        """`shared`: directory that all agents see; None: there is none. `base`: environment of the agent, of which workers
        inherit a part (inheriting.py), and `inherits`: names and patterns that the operator added to that part. `account`: of
        the workers, if it is not the agent's own. `warm_environments_max`: 0 starts all of them cold. `limits_required`: do
        not open where the limits cannot hold. `image`: that the agent itself runs in, for trials that name it alone."""
        self._node, self._shared, self._account = node, shared, account
        self._endpoint = UnixEndpoint(node.directory, account)
        self.host = WorkerHost(node, slots, self._endpoint.address, inherited(base, inherits), tuple(command), account, image)
        self._kept_back = left_out(base, inherits)
        """Names of the agent's variables that workers do not get."""
        self.warm = WarmPool(node.directory, warm_environments_max, account)
        self.kept = KeptWorkers()
        self._cgroups, self._limits_required = Cgroups(node.directory, limits or ProcessLimits()), limits_required
        self._scratch = Scratch(node.directory, base, account)
        self._opened = False
        self._temporary: dict[str, Path] = {}
        """Temporary directories of allocations that were prepared, until they start."""
        self._waiting: dict[Handle, Spawned | WarmSpawned] = {}
        """Workers that were started and wait for their go."""
        self._forked: dict[Handle, WarmSpawned] = {}
        """Running workers that were forked from a warm process, and report their end themselves."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.host.slots

    @property
    def endpoint(self) -> UnixEndpoint:
        return self._endpoint

    def files(self, allocation_id: str) -> RunFiles:
        return self.host.files(allocation_id)

    @property
    def names(self) -> tuple[str, ...]:
        return ("process",)

    def takes(self, work: Work) -> bool:
        return work.assignment.config.environment.image in (None, self.host.image)

    def owns(self, handle: Handle) -> bool:
        return handle.partition(":")[0].isdecimal()

    @property
    def separate_account(self) -> bool:
        return self._account is not None

    @property
    def unlimited(self) -> str:
        return self._cgroups.problem

    async def open(self) -> None:
        if self._account is not None:
            await asyncio.to_thread(self._admit, self._account)
        await asyncio.to_thread(self._cgroups.open, lambda: processes.marked(self._node.directory))
        if self.unlimited and self._limits_required:
            raise RuntimeUnavailable(f"Runs cannot be limited here, and TENUTO_LIMITS_REQUIRED is set: {self.unlimited}.")
        if self.unlimited:
            logger.warning("runs are without limits that were set: %s", self.unlimited)
        if self._kept_back:
            shown, more = self._kept_back[:NAMES_TOLD_MAX], len(self._kept_back) - NAMES_TOLD_MAX
            names = ", ".join(visible(name)[:NAME_SHOWN_MAX] for name in shown) + (f" and {more} more" if more > 0 else "")
            logger.info("workers do not get these variables of the agent; %s adds those that they need: %s", SETTING, names)
        self._opened = True

    async def warm_up(self) -> None:
        self.warm.warm(common_environment(self.host, self.slots[:1]))

    async def close(self) -> None:
        for spawned in self._waiting.values():
            spawned.abandon()
        self._waiting.clear()
        await self.kept.close()
        await self.warm.close()
        if self._opened:  # otherwise the directory may belong to another agent
            self._scratch.close()

    async def find(self) -> Mapping[str, Sequence[Handle]]:
        found: dict[str, list[Handle]] = {}
        for pid, allocation_id in (await asyncio.to_thread(processes.marked, self._node.directory)).items():
            started = processes.start_time(pid)
            if started is not None and not is_cleaner(pid):
                found.setdefault(allocation_id, []).append(Identity(pid, started).handle)
        return found

    async def sweep(self, live: Collection[str]) -> None:
        await asyncio.to_thread(self._scratch.sweep, live)
        await asyncio.to_thread(self._cgroups.sweep, live)

    async def prepare(self, work: Work) -> None:
        """Makes the run's directories. The run's own is given away last: until then no other account can put anything into it."""
        if why := misplaced(work.assignment.config.environment, self.host.image):
            raise OSError(why)
        directory = self.host.files(work.allocation_id).directory
        remove_tree(directory)
        directory.mkdir(mode=0o700, parents=True)
        self._temporary[work.allocation_id] = self._scratch.make(work.allocation_id)
        if self._account is not None:
            directory.parent.chmod(PASSING)
            self._account.own(directory, 0o700)

    async def vacate(self, work: Work) -> None:
        await self.kept.vacate(slots_on(work.assignment, self._node.agent_id))

    async def start(self, work: Work) -> Handle:
        files = self.host.files(work.allocation_id)
        environment = worker_environment(self.host, work, self._temporary.pop(work.allocation_id))
        command = SUPERVISOR_COMMAND if is_gang(work.assignment) else self.host.command
        slots, likeness = slots_on(work.assignment, self._node.agent_id), self._likeness(work, environment)
        spawned: Spawned | WarmSpawned | None = await self.kept.take(
            slots, likeness, lambda: order(files, environment, work.context, keeps=True)
        )
        if spawned is None and not work.secrets:  # a process that others are forked from must not hold secrets
            entrypoint, keeps = work.assignment.config.entrypoint, likeness is not None
            spawned = await self.warm.spawn(files, environment, work.context, entrypoint, keeps=keeps)
        spawned = spawned or processes.spawn(command, files, environment, work.context, self._account)
        handle = spawned.handle
        try:
            await asyncio.to_thread(self._limit, work, spawned)
        except BaseException:
            spawned.abandon()
            raise
        self._waiting[handle] = spawned
        if likeness is not None and isinstance(spawned, WarmSpawned):
            self.kept.note(spawned, likeness)
        return handle

    def _likeness(self, work: Work, environment: Mapping[str, str]) -> Likeness | None:
        """None: the run has a process of its own, as all have whose memory is limited: a process takes it along."""
        return None if self._cgroups.limits else Likeness.of(work, self._node.agent_id, environment)

    async def go(self, handle: Handle) -> None:
        spawned = self._waiting.pop(handle)
        spawned.go()
        if isinstance(spawned, WarmSpawned):
            self._forked[handle] = spawned

    def note_told(self, allocation_id: str, ending: Ending) -> None:
        """Does nothing: no part of a run is used again."""

    async def abandon(self, handle: Handle) -> None:
        if (spawned := self._waiting.pop(handle, None)) is not None:
            spawned.abandon()
            if isinstance(spawned, WarmSpawned):
                self.kept.note_ended(spawned)

    async def kill(self, handle: Handle) -> None:
        while not self.kept.is_over(handle):
            try:
                processes.kill(Identity.of(handle))
                return
            except OSError as error:  # no descriptor to look with: an order to kill must not be lost for that
                logger.warning("the workers %s cannot be killed yet (%s); trying again", handle, error)
                await asyncio.sleep(KILL_AGAIN_SECONDS)

    async def kill_all(self, allocation_id: str) -> bool:
        return await processes.kill_rest(self._node.directory, allocation_id, self._cgroups.members)

    async def wait(self, allocation_id: str, handle: Handle) -> Exit:
        forked = self._forked.pop(handle, None)
        try:
            if forked is None or not await forked.wait_ended():
                await processes.wait_gone(Identity.of(handle))
            left_nothing = forked is not None and forked.left_nothing
            if not left_nothing and not await self.kill_all(allocation_id):
                raise StillRunning("its processes cannot be killed; their slots stay taken")
            found = await asyncio.to_thread(self._exit, allocation_id)
        except BaseException:
            if forked is not None:
                forked.kept = False
                self.kept.note_ended(forked)  # called again, this waits for the end of its leader
            raise
        if forked is not None:
            self.kept.note_ended(forked)
        return found

    async def clean(self, allocation_id: str) -> None:
        self._temporary.pop(allocation_id, None)
        await asyncio.to_thread(self._remove, allocation_id)  # may be gigabytes

    def _limit(self, work: Work, spawned: Spawned | WarmSpawned) -> None:
        """Puts the run into its cgroup; before the go, so that all processes of the user's code are limited. Raises OSError."""
        if not self._cgroups.make(work.allocation_id, len(slots_on(work.assignment, self._node.agent_id))):
            return
        pid = spawned.identity.pid
        # Of a warm run only the worker: its leader waits, and moving a process costs the kernel milliseconds.
        for one in processes.forked(pid) if isinstance(spawned, WarmSpawned) else (pid,):
            self._cgroups.add(work.allocation_id, one)

    def _exit(self, allocation_id: str) -> Exit:
        """Raises OSError."""
        found = read_exit(self.host.files(allocation_id))
        memory = self._cgroups.memory_end(allocation_id)
        if memory.killed:
            return found.for_memory(out_of_memory("The trial", memory.limit_bytes, "TENUTO_MEMORY_BYTES_PER_SLOT"))
        return found

    def _remove(self, allocation_id: str) -> None:
        self._cgroups.remove(allocation_id)
        self._scratch.remove(allocation_id)
        remove_tree(self.host.files(allocation_id).directory)

    def _admit(self, account: Account) -> None:
        """Prepares directories for processes of another account. Raises RuntimeUnavailable."""
        if account.is_other:
            os.umask(0o077)  # files for other accounts are opened explicitly
        directory = self._node.directory
        try:
            check_account(account, directory)
            if account.is_other:
                self.host.home.mkdir(mode=0o700, exist_ok=True)
                account.own(self.host.home, 0o700)
            if self._shared is not None:
                checkpoints = self._shared / "checkpoints"
                checkpoints.mkdir(parents=True, exist_ok=True)
                if not account.can_enter(checkpoints):
                    raise NoAccount(
                        f"Workers cannot run as {account.name}: it may not enter {self._shared}, the shared directory."
                    )
                hand_over(checkpoints, account)
        except NoAccount as error:
            raise RuntimeUnavailable(str(error)) from error
        except OSError as error:
            places = directory if self._shared is None else f"{self._shared} and {directory}"
            raise RuntimeUnavailable(
                f"Workers cannot run as {account.name}: {places} cannot be prepared for it ({error})."
            ) from error


def misplaced(environment: Environment, own: str) -> str:
    """Reason why the agent, which runs in the image `own` if it is not empty, cannot run the trial; empty: it can. Such a trial
    was granted when the agent was another one."""
    if own and environment.image != own:
        return f"this agent runs in the image {own}, for trials that name it, and the trial names {environment.image or 'none'}"
    if own and environment.container_fields:
        given = ", ".join(environment.container_fields)
        return f"this agent runs in the image {own} as a whole, and {given} of environment needs a container of the trial's own"
    if not own and environment.image is not None:
        return f"this agent runs no images (TENUTO_DOCKER_URL is not set), and the trial needs {environment.image}"
    return ""
