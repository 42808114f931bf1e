"""When notices are sent, which of them in one message, and when a target is given up. Clock and jitter are arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from tenuto.schemas.ids import name_id
from tenuto.services.gateway.notices.state import Notice

FIRST_WAIT_SECONDS = 1.0
"""Before the second attempt; doubles each time."""
WAIT_SECONDS_MAX = 3_600.0
"""Between attempts: a target that is back is noticed within an hour, and one that is away costs 30 attempts a day."""
TRY_SECONDS = 24 * 3_600.0
"""From when a notice was triggered (or sent again by hand) until it is given up."""
MESSAGE_NOTICES_MAX = 100
"""In one message: what a person can still look through."""
LATE_SECONDS = 1.0
"""A group is sent so much after its end: what was triggered before may be committed a moment later."""
RECORDED_WAIT_SECONDS = 30.0
"""A wait at least so long is recorded, so that a restart does not cut it short."""


class Batch(NamedTuple):
    """What is sent in one message."""

    notices: tuple[Notice, ...]
    not_before_us: int


def first_batch(notices: Sequence[Notice]) -> Batch:
    """Of notices that wait, in order: the first, with those behind it that belong to its group."""
    first = notices[0]
    group = takewhile(lambda item: item.group == first.group, notices)
    together = tuple(item for item, _ in zip(group, range(MESSAGE_NOTICES_MAX), strict=False))
    # A group without duration is one notice: it is sent at once.
    late_us = int(LATE_SECONDS * 1e6) if first.group_until_us > first.time_us else 0
    return Batch(together, first.group_until_us + late_us if late_us else first.time_us)


def message_id(notices: Iterable[Notice]) -> str:
    """Of the message with these notices: the same at each attempt, so that a receiver can tell one that it has."""
    ids = [item.id for item in notices]
    return str(UUID(ids[0])) if len(ids) == 1 else str(name_id("notices", *ids))


def wait_seconds(attempts: int, asked_seconds: float | None, fraction: float) -> float:
    """After so many failed attempts. `asked_seconds`: what the target asked for (Retry-After). `fraction`: drawn from 0 to 1, so
    that many webhooks of one target do not come back at once."""
    usual = min(WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2.0 ** min(attempts - 1, 60)) * (0.5 + fraction / 2)
    if asked_seconds is None:
        return usual
    return max(usual, min(asked_seconds, TRY_SECONDS) * (1 + fraction / 10))


def gives_up(notices: Sequence[Notice], now_us: int, wait: float) -> bool:
    """Whether the next attempt would come too late: the oldest is tried for a day."""
    return now_us + int(wait * 1e6) - min(item.queued_us for item in notices) > int(TRY_SECONDS * 1e6)
