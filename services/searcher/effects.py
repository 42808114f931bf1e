"""Hands proposals of outside samplers in: whenever the state wants a trial of theirs, one is asked for and submitted.

Where a sampler cannot propose, the experiment's trials that run are finished, and then it fails with the reason.
"""

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
from tenuto.services.searcher.commands import GiveUp
from tenuto.services.searcher.methods.sampling import Undrawable
from tenuto.services.searcher.state import Experiment, SearcherState

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Pause after a sampler failed or the log was unreachable: long enough not to fill the service's log, short enough to go on
soon."""
FAILURES_MAX = 5
"""Most failures of a sampler in a row before its experiment fails: half a minute, in which a lack of memory or of files may pass.
Something missing, or a trial that cannot be drawn, stays so and is not tried again."""


class Proposer:
    def __init__(self, loop: ServiceLoop[SearcherState], clock: Clock, retry_seconds: float = RETRY_SECONDS) -> None:
        self._loop, self._clock, self._retry_seconds = loop, clock, retry_seconds
        self._changed = asyncio.Event()
        self._failures: dict[int, int] = {}
        """Failures of the sampler since it last proposed, by experiment."""
        self._hopeless: dict[int, str] = {}
        """Reason why there will be no proposal, by experiment."""
        loop.on_folded(self._tell)

    def _tell(self, state: SearcherState, events: Sequence[Event]) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled. A sampler works in a thread: it may take seconds, and other experiments must not wait for it."""
        await self._loop.wait_ready()
        while True:
            self._changed.clear()
            if not await self._round():
                await self._changed.wait()

    async def _round(self) -> bool:
        """Makes one proposal for each experiment that wants one. True if there may be more to do at once."""
        known = self._loop.state.experiments
        for about in (self._failures, self._hopeless):
            for gone in [number for number in about if number not in known]:
                del about[gone]
        wanted = [item for item in wanting(self._loop.state) if item.id not in self._hopeless or not item.trials]
        failed = False
        for experiment in wanted:
            try:
                await self._serve(experiment)
            except LoopStopped:
                raise
            except (LogUnavailable, Refused) as error:
                failed = True
                logger.error("experiment %s: %s", experiment.id, error)
            except Exception as error:
                failed = True
                self._failed(experiment, error)
        if failed:
            await asyncio.sleep(self._retry_seconds)
        return bool(wanted)

    async def _serve(self, experiment: Experiment) -> None:
        if (error := self._hopeless.get(experiment.id)) is not None:
            await self._loop.submit(GiveUp(experiment.id, error, self._clock.now_us()))
            return
        try:
            command = await asyncio.to_thread(propose, experiment)
        except (SamplerMissing, Undrawable) as missing:
            logger.error("experiment %s: %s", experiment.id, missing)
            self._hopeless[experiment.id] = str(missing)
            return
        self._failures.pop(experiment.id, None)
        await self._loop.submit(dataclasses.replace(command, time_us=self._clock.now_us()))

    def _failed(self, experiment: Experiment, error: Exception) -> None:
        name = experiment.settings.name
        logger.error("experiment %s: the %s sampler failed", experiment.id, name, exc_info=error)
        failures = self._failures[experiment.id] = self._failures.get(experiment.id, 0) + 1
        if failures >= FAILURES_MAX:
            self._hopeless[experiment.id] = (
                f"The {name} sampler could not propose trial {experiment.requested + 1}: it failed {failures} times, the last"
                f" time with {type(error).__name__}: {error}. The searcher's log has the details; submit the experiment again, or"
                " with another searcher."
            )
