"""Rules for when notices are sent, which share a message, and when they are given up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from tenuto.kernel.reactions import Retries
from tenuto.schemas.ids import name_id
from tenuto.services.gateway.notices.state import Notice

TRY_SECONDS = 24 * 3_600.0
"""Time after which a notice is given up, from when it was triggered (or sent again by hand)."""
RETRIES = Retries(first_seconds=1.0, max_seconds=3_600.0, seconds_max=TRY_SECONDS)
"""Attempts at one message. A target that recovers is noticed within an hour, and a dead one costs 30 attempts a day."""
MESSAGE_NOTICES_MAX = 100
"""Most notices in one message: what a person can still look through."""
LATE_SECONDS = 1.0
"""Delay from the end of a group until it is sent: a notice triggered before the end may be committed a moment later."""
RECORDED_WAIT_SECONDS = 30.0
"""Shortest wait that is recorded, so that a restart does not cut it short."""


class NoticeBatch(NamedTuple):
    """Notices of one message."""

    notices: tuple[Notice, ...]
    not_before_us: int


def first_batch(notices: Sequence[Notice]) -> NoticeBatch:
    """First notice and those behind it that belong to its group. `notices`: those that wait, in order, at least one."""
    first = notices[0]
    group = takewhile(lambda item: item.group == first.group, notices)
    together = tuple(item for item, _ in zip(group, range(MESSAGE_NOTICES_MAX), strict=False))
    # A group without duration is one notice: it is sent at once.
    late_us = int(LATE_SECONDS * 1e6) if first.group_until_us > first.time_us else 0
    return NoticeBatch(together, first.group_until_us + late_us if late_us else first.time_us)


def message_id(notices: Iterable[Notice]) -> str:
    """Id of the message with these notices: the same at each attempt, so that a receiver recognizes one that it has."""
    ids = [item.id for item in notices]
    return str(UUID(ids[0])) if len(ids) == 1 else str(name_id("notices", *ids))
