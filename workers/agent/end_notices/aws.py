"""EC2's notices (instance metadata service, version 2): the end of a spot instance, its likely end, and maintenance.

Every question needs a token, which is asked for by PUT and is good for six hours.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tenuto.kernel.clock import Clock
from tenuto.schemas.events.agent import TIME_US_MAX
from tenuto.workers.agent.end_notices.metadata import Answer, MetadataService, NoAnswer
from tenuto.workers.agent.end_notices.notice import EndNotice

PAUSE_SECONDS = 5.0
"""Pause between two questions, as Amazon advises for notices of spot instances."""
MAINTENANCE_PAUSE_SECONDS = 60.0
"""Pause between two questions about maintenance, which is announced days before."""
TOKEN_SECONDS = 21_600
"""Longest life of a token."""
TOKEN_KEPT_SECONDS = 3_600.0
"""Age at which a token is replaced. One that the service no longer accepts is replaced at once."""
TOKEN_BYTES_MAX = 1_000
LATEST = "/latest/meta-data"
ACTIONS = ("terminate", "stop", "hibernate")


class Imds:
    """Client of the metadata service, which sends its token with each question."""

    def __init__(self, service: MetadataService, clock: Clock) -> None:
        self._service, self._clock = service, clock
        self._token, self._since = "", 0.0

    async def get(self, path: str) -> str | None:
        """Text of the document; None if it does not exist: nothing was announced. Raises NoAnswer."""
        answer = await self._ask(path)
        if answer.status == 401:
            self._token = ""
            answer = await self._ask(path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise NoAnswer(f"answers with status {answer.status}")
        return answer.text

    async def _ask(self, path: str) -> Answer:
        if not self._token or self._clock.monotonic() >= self._since + TOKEN_KEPT_SECONDS:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            answer = await self._service.ask("/latest/api/token", method="PUT", headers=headers)
            token = answer.text.strip()
            if answer.status != 200:
                raise NoAnswer(f"gives no token (status {answer.status})")
            if not (token.isascii() and token.isprintable() and 0 < len(token) <= TOKEN_BYTES_MAX):
                raise NoAnswer("gives no token that can be sent")
            self._token, self._since = token, self._clock.monotonic()
        return await self._service.ask(LATEST + path, headers={"X-aws-ec2-metadata-token": self._token})


class Spot:
    """The end of a spot instance, and the advice that it is likely."""

    pause_seconds = PAUSE_SECONDS

    def __init__(self, service: MetadataService, clock: Clock) -> None:
        self._imds = Imds(service, clock)

    async def ask(self) -> EndNotice | None:
        text = await self._imds.get("/spot/instance-action")
        if text is not None:
            return instance_action(text)
        text = await self._imds.get("/events/recommendations/rebalance")
        return None if text is None else rebalance(text)


class Maintenance:
    """Scheduled maintenance that ends, stops or restarts the instance."""

    pause_seconds = MAINTENANCE_PAUSE_SECONDS

    def __init__(self, service: MetadataService, clock: Clock) -> None:
        self._imds = Imds(service, clock)

    async def ask(self) -> EndNotice | None:
        text = await self._imds.get("/events/maintenance/scheduled")
        return None if text is None else maintenance(text)


def instance_action(text: str) -> EndNotice:
    """`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`. Raises NoAnswer."""
    document = _document(text, dict)
    action, at_us = document.get("action"), _time_us(document.get("time"))
    if action not in ACTIONS or at_us is None:
        raise NoAnswer("gives an instance action that cannot be read")
    return EndNotice("now", at_us, f"spot instance action {action} at {_shown(at_us)}")


def rebalance(text: str) -> EndNotice:
    """`{"noticeTime": "2020-10-27T08:22:00Z"}`. Raises NoAnswer."""
    if _time_us(_document(text, dict).get("noticeTime")) is None:
        raise NoAnswer("gives a rebalance recommendation that cannot be read")
    return EndNotice("soon", None, "rebalance recommendation: the spot instance is likely to end")


def maintenance(text: str) -> EndNotice | None:
    """A list of events, each with its Code, its State, and the times NotBefore and NotAfter. Raises NoAnswer."""
    due = []
    for event in _document(text, list):
        if not isinstance(event, dict):
            raise NoAnswer("gives maintenance events that cannot be read")
        if event.get("State", "active") == "active" and (at_us := _time_us(event.get("NotBefore"))) is not None:
            due.append((at_us, str(event.get("Code"))[:50]))
    if not due:
        return None
    at_us, code = min(due)
    return EndNotice("", at_us, f"maintenance {code!r} at {_shown(at_us)}")


def _document(text: str, kind: type) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise NoAnswer("gives a document that cannot be read")
    return found


def _time_us(text: Any) -> int | None:
    """Time in either form that EC2 uses, in microseconds since 1970. None if the text is no time."""
    if not isinstance(text, str) or len(text) > 100:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            time = read(text)
            time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            at_us = round(time.timestamp() * 1e6)
        except (ValueError, TypeError, OverflowError):
            continue
        return at_us if 0 < at_us <= TIME_US_MAX else None
    return None


def _shown(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")
