"""Contract of the targets of notices. `tests/contract/test_targets.py` tests each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from tenuto.schemas.base import Model
from tenuto.services.gateway.notices.adapters.addresses import Guard, Network
from tenuto.services.gateway.notices.adapters.messages import Message

ATTEMPT_SECONDS_MAX = 15.0
"""Longest attempt, from the lookup of the name to the whole answer: a receiver that does more than note the message should do
that later."""
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_CHARACTERS_MAX = 200
"""Most characters of a target's answer that are recorded."""


@dataclass(frozen=True)
class Delivered:
    answer: str
    reference: str = ""
    """Reference of the target to the message, by which a later one about the same experiment updates it. Empty: it cannot."""


class NotNow(Exception):
    """Message that was not accepted, and is worth another attempt. `retry_after_seconds`: wait that the target asked for."""

    def __init__(self, answer: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(answer)
        self.answer, self.retry_after_seconds = answer, retry_after_seconds


class NotEver(Exception):
    """Message that was not accepted, and will not be until a person mends something."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True)
class Means:
    """Means that a target is opened with, besides its settings."""

    guard: Guard
    """Judges each address that is connected to: `guarded_http.Channel(guard)` is an HTTP client that asks it."""
    allowed: Sequence[Network]
    """Networks that are not public and that the operator allows."""
    old_secrets: Callable[[int], Sequence[str]]
    """(now, in microseconds) -> earlier secrets that messages are still signed with, the newest first."""


class Target(Protocol):
    async def send(self, message: Message) -> Delivered:
        """Sends the message once, in ATTEMPT_SECONDS_MAX, to no address that the guard refuses, without following redirects.
        Raises only NotNow and NotEver, whose text has none of the target's secrets."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class TargetPlugin:
    """Declaration of a plug-in of `tenuto.notice_targets`."""

    settings: type[Model]
    """Model of the settings that users give; for a plug-in of another package its fields are both settings and secrets."""
    open: Callable[[Any, Means], Target]
    """(settings, means) -> the target. Connects to nothing."""
    shown: Callable[[Any], str]
    """(settings) -> place that users may see, and that is recorded: a whole address may be as secret as a password."""
    recovers: bool = False
    """True: unless users say otherwise, it is told when a reported problem is over."""


def host_of(url: str) -> str:
    """Part of an address that may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def retry_after(value: str | None, now_seconds: float) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None if it is missing or invalid."""
    if not value:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        when = parsedate_to_datetime(value)
        return max(0.0, when.timestamp() - now_seconds)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def judged(status: int, retry_after_seconds: float | None, *, final: bool = False) -> Delivered:
    """Outcome of an HTTP answer by its status. `final`: 4xx is permanent, but for 408, 425 and 429. Raises NotNow and NotEver."""
    if 200 <= status < 300:
        return Delivered(f"HTTP {status}")
    if 300 <= status < 400:
        raise NotEver(f"HTTP {status}: a redirect, which is not followed; give the webhook the address that it leads to")
    if status == 410 or (final and 400 <= status < 500 and status not in (408, 425, 429)):
        raise NotEver(f"HTTP {status}")
    raise NotNow(f"HTTP {status}", retry_after_seconds)
