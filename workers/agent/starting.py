"""Starts a run's processes: model directory, secrets, own directories, then a warm or a cold process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tenuto.workers.agent import hiding, processes
from tenuto.workers.agent.changed import Changed
from tenuto.workers.agent.contexts import Contexts, ContextUnavailable
from tenuto.workers.agent.environment import SUPERVISOR_COMMAND, Node, is_gang, worker_environment
from tenuto.workers.agent.gangs import place_rendezvous
from tenuto.workers.agent.live import Live
from tenuto.workers.agent.outcome import End, name_end
from tenuto.workers.agent.processes import RunFiles, Spawned
from tenuto.workers.agent.scratch import PASSING, Scratch
from tenuto.workers.agent.warm import WarmPool, WarmSpawned

logger = logging.getLogger(__name__)

SECRETS_SECONDS = 1.0
"""Between looks whether a run that waits for its secrets was killed."""


Tell = Callable[[Live, str], Awaitable[None]]


class Starter:
    """Of one agent. Several runs may be started at once."""

    def __init__(
        self, node: Node, contexts: Contexts, scratch: Scratch, warm: WarmPool, command: Sequence[str], tell: Tell
    ) -> None:
        """`tell`: puts a line into the log of a run."""
        self._node, self._contexts, self._scratch, self._warm, self._command = node, contexts, scratch, warm, tuple(command)
        self._tell = tell
        self._secrets: dict[str, str] = {}
        """Values by reference, as the launcher said them last; in memory only."""
        self._told = Changed()

    def tell_secrets(self, values: Mapping[str, str]) -> None:
        self._secrets = dict(values)
        self._told.notify()

    async def spawn(self, live: Live) -> Spawned | WarmSpawned | End:
        """Its processes, which wait for their go; or how it ended, if they could not be started."""
        run = live.run
        try:
            context = await self._contexts.unpack(run.assignment.context_hash)
        except ContextUnavailable as error:
            return End("lost", None, str(error))
        values = await self._secret_values(live)
        files = self._node.files(run.allocation_id)
        if live.run.killed_for is not None:
            return name_end(None, live.run.killed_for, files)
        try:
            environment = worker_environment(self._node, run, self._make_directories(files, run.allocation_id), values)
            if values:
                hiding.keep(files, values)
            place_rendezvous(live.run.assignment, self._node)  # which may have come since `run` was read
            command = SUPERVISOR_COMMAND if is_gang(run.assignment) else self._command
            # A process that others are forked from must not hold them.
            warm = None if values else await self._warm.spawn(files, environment, context, run.assignment.config.entrypoint)
            return warm or processes.spawn(command, files, environment, context, self._node.account)
        except OSError as error:
            return End("lost", None, f"the worker process could not be started: {error}")

    def _make_directories(self, files: RunFiles, allocation_id: str) -> Path:
        """Of a run that has not started. Returns its temporary one. The run's own is given away last: until then no other account
        can put anything into it. Raises OSError."""
        shutil.rmtree(files.directory, ignore_errors=True)
        files.directory.mkdir(mode=0o700, parents=True)
        temporary = self._scratch.make(allocation_id)
        if self._node.account is not None:
            files.directory.parent.chmod(PASSING)
            self._node.account.own(files.directory, 0o700)
        return temporary

    async def _secret_values(self, live: Live) -> dict[str, str]:
        """By variable. Waits for those that the launcher did not say yet, unless the run is killed."""
        wanted = live.run.assignment.config.environment.secrets
        looks = 0
        while (missing := sorted(set(wanted.values()) - self._secrets.keys())) and live.run.killed_for is None:
            looks += 1
            if looks == 2:  # it is no matter of the order in which messages come
                logger.info("allocation %s waits for the secrets %s", live.run.allocation_id, ", ".join(missing))
                await self._tell(live, _waits(missing))
            told = self._told.next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECRETS_SECONDS):
                    await told.wait()
        return {} if missing else {variable: self._secrets[reference] for variable, reference in wanted.items()}


def _waits(missing: Sequence[str]) -> str:
    names = ", ".join(reference.partition("/")[2] for reference in missing)
    owners = ", ".join(sorted({reference.partition("/")[0] for reference in missing}))
    return (
        f"the trial waits to start: {owners} has no secret {names} any more, or it cannot be read; set it again with "
        f"`tenuto secret set`, or end the experiment with `tenuto exp kill`."
    )
