"""Snapshots of a core's state: they bound the events that a start has to fold. A lost one costs time, never facts."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from tenuto.kernel.core import Core
from tenuto.kernel.eventlog import EventLog, LogError, Snapshot
from tenuto.kernel.tasks import stop_task

logger = logging.getLogger(__name__)
S = TypeVar("S")


class Snapshots:
    """Saves snapshots in the background, one at a time: the state is immutable, so the loop goes on meanwhile."""

    def __init__(self, log: EventLog, events: int) -> None:
        self._log, self._events = log, events
        self._position = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, position: int) -> None:
        self._position = position

    def due(self, position: int) -> bool:
        return position - self._position >= self._events and (self._task is None or self._task.done())

    def save(self, core: Core[S], state: S, position: int, own_position: int) -> None:
        """Starts to save a snapshot. `position` must not be beyond the committed checkpoint."""
        self._position = position
        self._task = asyncio.create_task(self._save(core, state, position, own_position), name=f"{core.name}-snapshot")

    async def _save(self, core: Core[S], state: S, position: int, own_position: int) -> None:
        try:
            data = await asyncio.to_thread(core.dump, state)
            await self._log.save_snapshot(Snapshot(core.name, position, own_position, core.rule_version, data))
        except LogError as error:
            logger.warning("%s could not save a snapshot; the next one will do: %s", core.name, error)
        except Exception:
            logger.exception("%s could not dump its state", core.name)

    async def stop(self) -> None:
        await stop_task(self._task)
