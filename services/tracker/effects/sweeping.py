"""Sweeps the stores from time to time: what was stored but never recorded is removed."""

from __future__ import annotations

import asyncio
import logging

from tenuto.kernel.clock import Clock
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.storage.stores import Stores
from tenuto.kernel.storage.sweep import experiments, sweep
from tenuto.schemas.ids import experiment_of
from tenuto.services.tracker.state import State

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 3600.0
"""Orphans cost space, nothing else: no need to hurry."""
ORPHAN_SECONDS_MIN = 24 * 3600.0
"""Far longer than any upload takes, and than a worker lives that does not know yet that it was given up."""


class Sweeper:
    def __init__(self, log: EventLog, loop: ServiceLoop[State], clock: Clock, stores: Stores) -> None:
        self._log, self._loop, self._clock, self._stores = log, loop, clock, stores
        self._used: dict[int, str] = {}
        """Stores of experiments that are not known to be clean for good."""
        self._position = 0
        self._ended_us: dict[int, int] = {}
        """Time at which an experiment was first seen to be over."""

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._loop.wait_ready()
        while True:
            try:
                await self.sweep_once()
            except (LogUnavailable, *DATABASE_FAILED) as error:
                logger.warning("the stores were not swept: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep_once(self) -> None:
        found, self._position = await experiments(self._log, self._position)
        self._used |= found
        now_us = self._clock.now_us()
        older_than_us = now_us - int(ORPHAN_SECONDS_MIN * 1e6)
        result = await sweep(self._log, self._stores, self._used, self._live, older_than_us, dry_run=False)
        for orphan in result.orphans:
            logger.info("removed %s (%d bytes): %s", orphan.url, orphan.size_bytes, orphan.reason)
        for problem in result.problems:
            logger.warning("the sweep could not look everywhere: %s", problem)
        self._forget_clean(now_us, older_than_us, failed=bool(result.problems))

    def _live(self, trial_id: str) -> str | None:
        try:
            trial = self._loop.state.trial(experiment_of(trial_id), trial_id)
        except ValueError:  # not a trial's directory
            return None
        return trial.allocation_id if trial else None

    def _forget_clean(self, now_us: int, older_than_us: int, failed: bool) -> None:
        """An experiment that was over for longer than the bound, and was swept since, gets no new orphans."""
        for experiment_id in sorted(self._used):
            if self._loop.state.experiment(experiment_id) is not None:
                self._ended_us.pop(experiment_id, None)
            elif self._ended_us.setdefault(experiment_id, now_us) < older_than_us and not failed:
                del self._used[experiment_id], self._ended_us[experiment_id]
