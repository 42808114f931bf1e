"""Hands proposals of outside samplers in: whenever the state wants a trial of theirs, one is asked for and submitted."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.kernel.loop import LoopStopped, ServiceLoop
from tenuto.schemas.envelope import Event
from tenuto.services.searcher.adapters.samplers import SamplerMissing, propose, wanting
from tenuto.services.searcher.state import SearcherState

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""After a sampler failed or the log was away: long enough not to fill the service's log, short enough to go on soon."""


class Proposer:
    def __init__(self, loop: ServiceLoop[SearcherState], clock: Clock) -> None:
        self._loop, self._clock = loop, clock
        self._changed = asyncio.Event()
        loop.on_folded(self._tell)

    def _tell(self, state: SearcherState, events: Sequence[Event]) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. A sampler works in a thread: it may take seconds, and other experiments must not wait for it."""
        await self._loop.wait_ready()
        while True:
            self._changed.clear()
            if not await self._round():
                await self._changed.wait()

    async def _round(self) -> bool:
        """One proposal for each experiment that wants one; whether there was any."""
        wanted = wanting(self._loop.state)
        failed = False
        for experiment in wanted:
            try:
                command = await asyncio.to_thread(propose, experiment)
                await self._loop.submit(dataclasses.replace(command, time_us=self._clock.now_us()))
            except LoopStopped:
                raise
            except (SamplerMissing, LogUnavailable, Refused) as error:
                failed = True
                logger.error("experiment %s: %s", experiment.id, error)
            except Exception:
                failed = True
                logger.exception("experiment %s: the %s sampler failed", experiment.id, experiment.settings.name)
        if failed:
            await asyncio.sleep(RETRY_SECONDS)
        return bool(wanted)
