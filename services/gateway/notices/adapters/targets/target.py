"""What a target of notices promises. `tests/contract/test_targets.py` tries it on each."""

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
"""From looking the name up to the whole answer: a receiver that does more than note the message should do that later."""
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_CHARACTERS_MAX = 200
"""Of what a target says, on record."""


@dataclass(frozen=True)
class Delivered:
    answer: str
    reference: str = ""
    """What the target calls the message, where a later one about the same experiment may update it."""


class NotNow(Exception):
    """Not taken, and worth another attempt. `retry_after_seconds`: what the target asked for."""

    def __init__(self, answer: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(answer)
        self.answer, self.retry_after_seconds = answer, retry_after_seconds


class NotEver(Exception):
    """Not taken, and another attempt would change nothing until a person mends something."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True)
class Means:
    """What a target is opened with, beside its settings."""

    guard: Guard
    """Judges each address that is connected to: `guarded_http.Channel(guard)` is an HTTP client that asks it."""
    allowed: Sequence[Network]
    """Networks that are not public and may be reached all the same, as the operator set."""
    old_secrets: Callable[[int], Sequence[str]]
    """(now, in microseconds) -> earlier secrets that messages are still signed with, the newest first."""


class Target(Protocol):
    async def send(self, message: Message) -> Delivered:
        """Sends it once, in ATTEMPT_SECONDS_MAX, to no address that the guard refuses, and follows no redirect. Raises NotNow and
        NotEver, whose text has none of the target's secrets; nothing else."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class TargetPlugin:
    """What a plug-in of `tenuto.notice_targets` declares."""

    settings: type[Model]
    """What users give for it; the settings and secrets of another package's are its fields alike."""
    open: Callable[[Any, Means], Target]
    """(settings, means) -> the target. Connects to nothing."""
    shown: Callable[[Any], str]
    """Place that people may see, on record too: an address may be as secret as a password."""
    recovers: bool = False
    """True: unless users say otherwise, it is told when what there was a notice about is well again."""


def host_of(url: str) -> str:
    """Part of an address that may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def retry_after(value: str | None, now_seconds: float) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date; None where there is none that makes sense."""
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
    """An answer of HTTP by its status. `final`: a refusal that stays one. Raises NotNow and NotEver."""
    if 200 <= status < 300:
        return Delivered(f"HTTP {status}")
    if 300 <= status < 400:
        raise NotEver(f"HTTP {status}: a redirect, which is not followed; give the webhook the address that it leads to")
    if status == 410 or (final and 400 <= status < 500 and status not in (408, 425, 429)):
        raise NotEver(f"HTTP {status}")
    raise NotNow(f"HTTP {status}", retry_after_seconds)
