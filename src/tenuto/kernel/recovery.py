"""Recovery of a service: the newest snapshot, and the tail of the log folded on it in the recorded order; without a snapshot that
can be used, the whole log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from tenuto.kernel.codec import SnapshotRefused
from tenuto.kernel.core import Core
from tenuto.kernel.eventlog import READ_EVENTS_MAX, Append, ConsumerCheckpoint, EventLog, Fenced, LogUnavailable
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX
from tenuto.kernel.replay import FoldOrder
from tenuto.schemas.envelope import Event

logger = logging.getLogger(__name__)
S = TypeVar("S")

CLAIM_ATTEMPTS_MAX = 10
"""Most attempts to claim the checkpoint. Each failed one means that another instance has just committed; this many in a row
mean that it is alive and at work."""


@dataclass(frozen=True)
class RecoveredCore(Generic[S]):
    state: S
    checkpoint: ConsumerCheckpoint
    own_position: int
    snapshot_position: int
    already: dict[UUID, Event]
    """Recorded events of an input beyond the checkpoint, by id: the input decided more events than one append holds, and only
    the first parts were committed. Deciding on it again yields all of them, these included."""


async def recover(core: Core[S], log: EventLog) -> RecoveredCore[S]:
    """Recovers the state. Waits while the log cannot be reached. Raises Fenced if another instance keeps committing."""
    wait_seconds = RETRY_SECONDS
    while True:
        try:
            return await _recover(core, log)
        except LogUnavailable as error:
            logger.warning("%s cannot read the log, trying again in %.1f s: %s", core.name, wait_seconds, error)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, RETRY_SECONDS_MAX)


async def _recover(core: Core[S], log: EventLog) -> RecoveredCore[S]:
    checkpoint = await _claim(core.name, log)
    snapshot, state = await log.latest_snapshot(core.name, core.rule_version), core.initial()
    if snapshot is not None:
        try:
            state = core.load(snapshot.state)
        except SnapshotRefused as why:
            logger.warning("%s folds the whole log, as its snapshot at %d cannot be used: %s", core.name, snapshot.position, why)
            snapshot = None
    position, own_position = (0, 0) if snapshot is None else (snapshot.position, snapshot.own_position)
    snapshot_position = position
    order, already = FoldOrder(core), dict[UUID, Event]()
    types = sorted(core.consumes | core.emits)
    # The snapshot's two positions differ; events between them are partly folded in, and the loop skips those.
    after = min(position, own_position)
    while True:
        page = await log.read(after, READ_EVENTS_MAX, types=types)
        for event in page:
            own = event.type in core.emits
            if event.position <= (snapshot.own_position if own else snapshot.position) if snapshot else False:
                continue
            if own:
                own_position = event.position
                # A part of a split append: the checkpoint moves only with the last part.
                if event.seen_position > checkpoint.position:
                    already[event.id] = event
                    continue
            for ready in order.push(event):
                state = core.evolve(state, ready)
        if not page.more:
            break
        after = page[-1].position
    # Inputs behind the last own event: they were folded without a decision, up to the checkpoint.
    for ready in order.rest(checkpoint.position):
        state = core.evolve(state, ready)
    logger.info("%s recovered at position %d", core.name, checkpoint.position)
    return RecoveredCore(state, checkpoint, own_position, snapshot_position, already)


async def _claim(consumer: str, log: EventLog) -> ConsumerCheckpoint:
    """Raises the checkpoint's count, so that an older instance that still runs can commit nothing more, not even an append
    that is already on its way."""
    for _ in range(CLAIM_ATTEMPTS_MAX):
        checkpoint = await log.checkpoint(consumer)
        try:
            appended = await log.append(Append(checkpoint=checkpoint, next_position=checkpoint.position))
        except Fenced:
            continue
        assert appended.checkpoint is not None
        return appended.checkpoint
    raise Fenced(f"another instance of {consumer} is running; stop it first")
