"""Commits with a known outcome, even if the connection is lost between a commit and its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from uuid import UUID

from tenuto.kernel.eventlog import (
    Append,
    Appended,
    ConsumerCheckpoint,
    EventLog,
    Fenced,
    LogUnavailable,
    NotWritable,
)
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import derived_event_id

logger = logging.getLogger(__name__)


async def append_surely(log: EventLog, batch: Append, tell_available: Callable[[bool], None]) -> Appended:
    """Appends a batch that carries a checkpoint. Waits and tries again while the log cannot be reached or written. If an answer
    was lost, the checkpoint's count and the events' ids tell whether the batch was committed.

    Raises Fenced, VersionConflict and DuplicateEvent, as the log does.
    """
    assert batch.checkpoint is not None
    wait_seconds, uncertain = RETRY_SECONDS, False
    while True:
        try:
            appended = await log.append(batch)
        except (LogUnavailable, NotWritable) as error:
            tell_available(False)
            # NotWritable is an answer: nothing was recorded. Without an answer, the batch may have been.
            uncertain = uncertain or isinstance(error, LogUnavailable)
            logger.warning("%s cannot commit, trying again in %.1f s: %s", batch.checkpoint.consumer, wait_seconds, error)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)
        except Fenced:
            # The checkpoint may have been moved by this very batch, whose answer was lost.
            done = await _find_done(log, batch, batch.checkpoint) if uncertain else None
            if done is None:
                raise
            tell_available(True)
            return done
        else:
            tell_available(True)
            return appended


async def _find_done(log: EventLog, batch: Append, before: ConsumerCheckpoint) -> Appended | None:
    """The batch as recorded, or None if another instance moved the checkpoint."""
    while True:
        try:
            now = await log.checkpoint(before.consumer)
            # A commit moves the count by exactly one, and no other batch of this instance is under way.
            if now != ConsumerCheckpoint(before.consumer, batch.next_position, before.commits + 1):
                return None
            recorded: list[Event] = []
            # Another instance may have moved the checkpoint to the same position and count; only the ids tell whose commit it
            # was.
            for event in batch.events:
                found = await log.find(event.id)
                if found is None:
                    return None
                recorded.append(found)
            return Appended(tuple(recorded), now)
        except LogUnavailable:
            await asyncio.sleep(RETRY_SECONDS_MAX)


async def recorded_answers(log: EventLog, consumer: str, cause: UUID) -> tuple[Event, ...]:
    """The events that `consumer` has recorded because of `cause`."""
    recorded: list[Event] = []
    for index in count():
        found = await log.find(derived_event_id(consumer, cause, index))
        if found is None:
            return tuple(recorded)
        recorded.append(found)
    raise AssertionError("count() does not end")
