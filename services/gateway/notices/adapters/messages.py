"""Content of a message: its notices in words. Each target chooses how to show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.sentences import said
from tenuto.schemas.webhooks import Severity
from tenuto.services.gateway.notices.state import Notice

LOG_LINES_MAX = 10
LOG_LINE_CHARACTERS_MAX = 200
ERROR_CHARACTERS_MAX = 2_000


@dataclass(frozen=True)
class About:
    """Facts from the views about the subject of a notice, at the time of sending."""

    experiment_name: str = ""
    user: str = ""
    error: str = ""
    log_lines: tuple[str, ...] = ()
    """Last log lines of the trial."""


@dataclass(frozen=True)
class NoticeInWords:
    """One notice in words."""

    id: str
    number: int
    time_us: int
    event_type: str
    severity: Severity
    recovered: bool
    why: str
    """Reason for the notice, in one sentence."""
    subject: str
    """Subject such as `experiment/3` or `agent/node-1`; notices of one subject belong together."""
    link: str
    experiment_id: int | None = None
    experiment_name: str = ""
    user: str = ""
    trial_id: str | None = None
    agent_id: str | None = None
    error: str = ""
    log_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Message:
    id: str
    """Id that is the same at each attempt."""
    webhook: str
    time_us: int
    """Time at which it is composed, just before the first attempt."""
    notices: tuple[NoticeInWords, ...]
    reference: str = ""
    """Reference that the target gave to the earlier message about this experiment. Empty: there was none."""

    @property
    def title(self) -> str:
        first = self.notices[0]
        more = len(self.notices) - 1
        return first.why if not more else f"{first.why} (and {more} more)"


def told(notice: Notice, about: About, link: str, actor: str) -> NoticeInWords:
    """The notice in words. `actor`: service that decided it and version of its rules, as recorded."""
    reason: dict[str, Any] = json.loads(notice.reason)
    data = {
        "event_type": notice.event_type,
        "experiment_id": notice.experiment_id,
        "trial_id": notice.trial_id,
        "agent_id": notice.agent_id,
    }
    return NoticeInWords(
        id=notice.id,
        number=notice.number,
        time_us=notice.time_us,
        event_type=notice.event_type,
        severity=notice.severity,
        recovered=notice.recovered,
        why=said(WebhookTriggered.TYPE, reason["rule"], reason["numbers"], data, actor),
        subject=notice.subject,
        link=link,
        experiment_id=notice.experiment_id,
        experiment_name=about.experiment_name,
        user=about.user,
        trial_id=notice.trial_id,
        agent_id=notice.agent_id,
        error=about.error[:ERROR_CHARACTERS_MAX],
        log_lines=tuple(line[:LOG_LINE_CHARACTERS_MAX] for line in about.log_lines[-LOG_LINES_MAX:]),
    )


def as_data(message: Message) -> dict[str, Any]:
    """Body of signed HTTP before it is encoded: `type`, `timestamp` and `data`, by the Standard Webhooks convention."""
    return {
        "type": "tenuto.test" if all(not item.event_type for item in message.notices) else "tenuto.notice",
        "timestamp": iso_time(message.notices[0].time_us),
        "data": {
            "webhook": message.webhook,
            "notices": [_notice_data(item) for item in message.notices],
        },
    }


def _notice_data(item: NoticeInWords) -> dict[str, Any]:
    return {
        "id": item.id,
        "number": item.number,
        "time_us": item.time_us,
        "event_type": item.event_type,
        "severity": item.severity,
        "recovered": item.recovered,
        "why": item.why,
        "subject": item.subject,
        "experiment_id": item.experiment_id,
        "experiment_name": item.experiment_name,
        "user": item.user,
        "trial_id": item.trial_id,
        "agent_id": item.agent_id,
        "error": item.error,
        "log_lines": list(item.log_lines),
        "link": item.link,
    }


def iso_time(time_us: int) -> str:
    """UTC, to the second, such as 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_words(message: Message) -> Sequence[str]:
    """The lines of a plain text message."""
    lines: list[str] = []
    for item in message.notices:
        lines.append(f"[{item.severity}{', recovered' if item.recovered else ''}] {item.why}")
        about = ", ".join(part for part in (item.experiment_name, item.user) if part)
        lines.append(f"  {item.link}{f' ({about})' if about else ''}")
        lines += [f"  {line}" for line in item.error.splitlines()]
        lines += [f"  | {line}" for line in item.log_lines]
    return lines
