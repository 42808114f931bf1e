"""Carries out deletions of experiments: records each when it is due, and then removes the code that nothing else uses, and what
unmanaged runs have logged. Checkpoints, metrics and log lines are the tracker's, which deletes them for the same event."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.effects import Nack
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import SettingsError
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentDeleted
from tenuto.schemas.ids import name_id
from tenuto.services.gateway.experiments.commands import CarryOutDeletion
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.read_models.common import PROJECTION

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Pause between looks for deletions that are due: users wait for hours, and a look costs microseconds."""
CODE_SECONDS_MIN = 600.0
"""Age of packed code that may be removed. A submission with the same code may be under way, whose experiment is recorded after
its code is stored: within the time that reading a submission may take."""
VIEWS_RETRY_SECONDS = 5.0
GRACE_HOURS_MAX = 87_600.0
"""Ten years: who means "never" should not delete."""
_IN_USE = """
SELECT (SELECT position FROM projection_cursors WHERE projection = $1) >= $2 AS known, context_hash,
    EXISTS (SELECT 1 FROM experiments other WHERE other.context_hash = e.context_hash AND other.deleted_us IS NULL) AS used
FROM experiments e WHERE experiment_id = $3"""


def check_grace(hours: float) -> None:
    """Raises SettingsError."""
    if not 0 <= hours <= GRACE_HOURS_MAX:
        raise SettingsError(f"TENUTO_DELETION_GRACE_HOURS is {hours}, but must be from 0 to {GRACE_HOURS_MAX:.0f}.")


class Deleter:
    def __init__(self, loop: ServiceLoop[ExperimentsState], clock: Clock) -> None:
        self._loop, self._clock = loop, clock

    async def run(self) -> None:
        """Deletes until cancelled."""
        await self._loop.wait_ready()
        while True:
            await self.carry_out_due()
            await asyncio.sleep(LOOK_SECONDS)

    async def carry_out_due(self) -> None:
        now_us, deletions = self._clock.now_us(), self._loop.state.deletions
        for experiment_id in sorted(deletions):
            due_us = deletions[experiment_id].due_us
            if due_us > now_us:
                continue
            command_id = name_id("delete", str(experiment_id), str(due_us))
            try:
                await self._loop.submit(CarryOutDeletion(id=command_id, time_us=now_us, experiment_id=experiment_id))
            except (LogUnavailable, VersionConflict, Refused, *DATABASE_FAILED) as error:
                logger.warning("the deletion of experiment %d waits to be recorded: %s", experiment_id, error)
                return


class Remover:
    """Effect of ExperimentDeleted."""

    def __init__(self, pool: asyncpg.Pool, contexts: Path, forget: Callable[[int], Awaitable[None]]) -> None:
        """`forget`: removes what other subjects keep of an experiment."""
        self._pool, self._contexts, self._forget = pool, contexts, forget

    async def remove(self, event: Event) -> None:
        """Raises OSError, and Nack while the views do not know all experiments up to the deletion."""
        data = event.data
        assert isinstance(data, ExperimentDeleted)
        await self._forget(data.experiment_id)
        row = await self._pool.fetchrow(_IN_USE, PROJECTION, event.position, data.experiment_id)
        if row is None or not row["known"]:
            raise Nack("the views are behind", VIEWS_RETRY_SECONDS)
        if not row["used"]:
            await asyncio.to_thread(self._remove, self._contexts / f"{row['context_hash']}.tar.gz")

    def _remove(self, path: Path) -> None:
        try:
            if time.time() - path.stat().st_mtime > CODE_SECONDS_MIN:
                path.unlink()
        except FileNotFoundError:
            pass
