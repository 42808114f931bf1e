"""Looks at limits that are reached while experiments run, and has it recorded: the time of an experiment is over, the checkpoints
of a workspace have all that they may. What is due is found again after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Command, Refused
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.loop import ServiceLoop
from tenuto.services.gateway.experiments.commands import EndOverdue, NoteStorage
from tenuto.services.gateway.experiments.policies.wall_time import all_overdue
from tenuto.services.gateway.experiments.state import ExperimentsState

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Pause between looks for experiments whose time is over: limits are hours, and a look at a thousand experiments takes a
millisecond."""
STORAGE_LOOK_SECONDS = 5.0
"""Pause between counts of the bytes that limited workspaces have stored: some milliseconds for each of them."""
COUNT_SHARE = 0.02
"""Largest share of the time that counts take: with many large workspaces there are fewer."""


class LimitKeeper:
    def __init__(
        self,
        loop: ServiceLoop[ExperimentsState],
        clock: Clock,
        stored_bytes: Callable[[str], Awaitable[int]],
        views_reached: Callable[[int], Awaitable[None]],
    ) -> None:
        """`stored_bytes`: of the kept checkpoints of a workspace, as the views say; raises errors of the database.
        `views_reached`: returns when these know the log up to a position."""
        self._loop, self._clock, self._stored_bytes, self._views_reached = loop, clock, stored_bytes, views_reached

    async def run(self) -> None:
        """Enforces limits until cancelled."""
        await self._loop.wait_ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end(), name="time-limits")
            tasks.create_task(self._count(), name="storage-limits")

    async def _end(self) -> None:
        while True:
            now_us = self._clock.now_us()
            for experiment_id in list(all_overdue(self._loop.state, now_us)):
                await self._submit(EndOverdue(id=self._clock.new_id(), time_us=now_us, experiment_id=experiment_id))
            await asyncio.sleep(LOOK_SECONDS)

    async def _count(self) -> None:
        while True:
            # Views that are filled again count too little, and a limit would be noted as left.
            await self._views_reached(self._loop.position)
            begun = self._clock.monotonic()
            workspaces = self._loop.state.access.workspaces
            for name in sorted(workspaces):
                known = workspaces[name]
                if not known.storage_bytes_max and known.noted_bytes is None:
                    continue
                try:
                    stored = await self._stored_bytes(name)
                except DATABASE_FAILED as error:
                    logger.warning("what workspace %s stores is counted later: %s", name, type(error).__name__)
                    break
                if (0 < known.storage_bytes_max <= stored) != (known.noted_bytes is not None):
                    now_us = self._clock.now_us()
                    await self._submit(NoteStorage(id=self._clock.new_id(), time_us=now_us, workspace=name, stored_bytes=stored))
            await asyncio.sleep(max(STORAGE_LOOK_SECONDS, (self._clock.monotonic() - begun) / COUNT_SHARE))

    async def _submit(self, command: Command) -> None:
        try:
            await self._loop.submit(command)
        except (LogUnavailable, VersionConflict, Refused, *DATABASE_FAILED) as error:
            logger.warning("a limit that is reached waits to be recorded: %s", error)
