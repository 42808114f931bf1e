"""Starts of runs: collects model directory and secrets, and has the runtime start the workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tenuto.kernel.tasks import stop_task
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tenuto.workers.agent import secret_masks
from tenuto.workers.agent.archives import ContextUnavailable
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.contexts import Contexts
from tenuto.workers.agent.gangs import place_rendezvous
from tenuto.workers.agent.live_run import LiveRun
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.outcome import End, name_end
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable, Exit, Handle, Runtime, Work

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Pause between checks whether a run was killed while it waits for its secrets or is being prepared."""


Tell = Callable[[LiveRun, str], Awaitable[None]]


class RunStarter:
    """Starts the runs of one agent; several may be started at once."""

    def __init__(self, node: AgentNode, runtime: Runtime, contexts: Contexts, tell: Tell) -> None:
        """`tell`: adds a line to the log of a run."""
        self._node, self._runtime, self._contexts, self._tell = node, runtime, contexts, tell
        self._secrets: dict[str, str] = {}
        """Secret values by reference, from the launcher's last message; in memory only."""
        self._told = Changed()

    def tell_secrets(self, values: Mapping[str, str]) -> None:
        self._secrets = dict(values)
        self._told.notify()

    async def start(self, live: LiveRun) -> Handle | End:
        """Handle of the started run, which waits for its go; or its end, if it could not be started."""
        run = live.run
        if not self._node.has_shared and run.assignment.config.checkpoint_storage.store == SHARED_STORE:
            return End("failed", EXIT_CODE_WILL_REPEAT, _no_directory(self._node.agent_id), "will_repeat")
        try:
            context = await self._contexts.unpack(
                run.assignment.context_hash, run.allocation_id, lambda: live.run.killed_for is None
            )
        except ContextUnavailable as error:
            if live.run.killed_for is not None:
                return name_end(Exit(None), None, live.run.killed_for, secret_masks.NO_MASK)
            return End("lost", None, str(error))
        values = await self._secret_values(live)
        environment = run.assignment.config.environment
        variables = {name: values[reference] for name, reference in environment.secrets.items() if reference in values}
        registry_auth = values.get(environment.registry_auth or "", "")
        work = Work(run.assignment, context, run.token, variables, registry_auth)
        if live.run.killed_for is not None:
            return name_end(Exit(None), None, live.run.killed_for, secret_masks.NO_MASK)
        try:
            if not await self._prepared(live, work):
                return name_end(Exit(None), None, live.run.killed_for, secret_masks.NO_MASK)
            if work.secrets:
                secret_masks.store(self._node.directory, run.allocation_id, work.secrets)
            await place_rendezvous(live.run.assignment, self._node.agent_id, self._runtime)  # it may have arrived meanwhile
            return await self._runtime.start(work)
        except EnvironmentUnusable as error:
            return End("failed", EXIT_CODE_WILL_REPEAT, str(error), "will_repeat")
        except OSError as error:
            return End("lost", None, f"the worker process could not be started: {error}")

    async def _prepared(self, live: LiveRun, work: Work) -> bool:
        """Prepares the run; False if it was killed meanwhile, for an image may take minutes to load. Raises OSError."""
        preparing = asyncio.create_task(self._runtime.prepare(work), name=f"prepare-{work.allocation_id}")
        try:
            while not preparing.done() and live.run.killed_for is None:
                await asyncio.wait({preparing}, timeout=LOOK_SECONDS)
            if preparing.done():
                preparing.result()
        finally:
            await stop_task(preparing)
        return live.run.killed_for is None

    async def _secret_values(self, live: LiveRun) -> dict[str, str]:
        """Secret values by reference. Waits for values that the launcher has not sent yet, unless the run is killed."""
        wanted = live.run.assignment.config.environment.secret_references
        looks = 0
        while (missing := sorted(wanted - self._secrets.keys())) and live.run.killed_for is None:
            looks += 1
            if looks == 2:  # the first time, the message may just be late
                logger.info("allocation %s waits for the secrets %s", live.run.allocation_id, ", ".join(missing))
                await self._tell(live, _waits(missing))
            told = self._told.next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await told.wait()
        return {} if missing else {reference: self._secrets[reference] for reference in wanted}


def _no_directory(agent_id: str) -> str:
    return (
        f"The experiment keeps its checkpoints in the directory that machines share, which agent {agent_id} does not have: name "
        "an object store in checkpoint_storage.store (`tenuto store ls`), or a pool whose agents have TENUTO_SHARED_DIRECTORY."
    )


def _waits(missing: Sequence[str]) -> str:
    names = ", ".join(reference.partition("/")[2] for reference in missing)
    owners = ", ".join(sorted({reference.partition("/")[0] for reference in missing}))
    return (
        f"the trial waits to start: {owners} has no secret {names} any more, or it cannot be read; set it again with "
        f"`tenuto secret set`, or end the experiment with `tenuto exp kill`."
    )
