"""Ends experiments that have run for as long as they may: recorded as soon as the time is over, also after a restart."""

from __future__ import annotations

import asyncio
import logging

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.database_away import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.loop import ServiceLoop
from tenuto.services.gateway.commands import EndOverdue
from tenuto.services.gateway.policies.wall_time import all_overdue
from tenuto.services.gateway.state import State

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks for experiments whose time is over: limits are hours, and a look at a thousand experiments takes a
millisecond."""


class Ender:
    def __init__(self, loop: ServiceLoop[State], clock: Clock) -> None:
        self._loop, self._clock = loop, clock

    async def run(self) -> None:
        """Until cancelled."""
        await self._loop.wait_ready()
        while True:
            await self.end_overdue()
            await asyncio.sleep(LOOK_SECONDS)

    async def end_overdue(self) -> None:
        now_us = self._clock.now_us()
        for experiment_id in list(all_overdue(self._loop.state, now_us)):
            try:
                await self._loop.submit(EndOverdue(id=self._clock.new_id(), time_us=now_us, experiment_id=experiment_id))
            except (LogUnavailable, VersionConflict, Refused, *DATABASE_FAILED) as error:
                logger.warning("the end of experiment %d, whose time is over, waits to be recorded: %s", experiment_id, error)
                return
