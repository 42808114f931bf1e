"""Requests and answers of the webhook routes. Only the answer that creates a secret shows it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.notice import NUMBERS_MAX
from tenuto.schemas.webhooks import (
    GROUP_SECONDS_MAX,
    TRIGGERS_MAX,
    WEBHOOK_NAME_PATTERN,
    Filters,
    Severity,
    Target,
    TargetKind,
    Trigger,
)

KEEP_OLD_HOURS_MAX = 30 * 24.0


class NewWebhookBody(Model):
    name: str = Field(pattern=WEBHOOK_NAME_PATTERN)
    target: Target
    triggers: tuple[Trigger, ...] = Field(min_length=1, max_length=TRIGGERS_MAX)
    """Triggers, any of which sends a notice; an event sends at most one."""
    filters: Filters = Filters()
    group_seconds: float = Field(default=0.0, ge=0, le=GROUP_SECONDS_MAX)
    """Seconds after the first notice of a group in which others join its message. 0: each notice is a message of its own."""
    recoveries: bool | None = None
    """True: another notice is sent when a reported problem is over. null: only for PagerDuty, which resolves its alert."""


class ChangedWebhookBody(Model):
    """Changes of a webhook; a field that is missing or null stays as it is."""

    triggers: tuple[Trigger, ...] | None = Field(default=None, min_length=1, max_length=TRIGGERS_MAX)
    """Triggers that replace the present ones. Metrics, stalls and waits start anew: one beyond its limit is reported again."""
    filters: Filters | None = None
    """Filters that replace the present ones."""
    group_seconds: float | None = Field(default=None, ge=0, le=GROUP_SECONDS_MAX)
    recoveries: bool | None = None
    paused: bool | None = None
    """True: no notices are triggered, and waiting ones are not sent. False: they are sent, each tried for a day from now on."""


class ExplanationView(Model):
    event_id: str
    event_type: str
    position: int
    number: int | None
    """Number of the notice that the event triggered. null: it triggered none."""
    sentences: tuple[str, ...]
    """Reasons: one for each filter and trigger that did not match, or the reason of the notice."""


class RotateBody(Model):
    secret: str | None = Field(default=None, pattern=r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}$")
    """null: the gateway makes one."""
    keep_old_hours: float = Field(default=24.0, ge=0, le=KEEP_OLD_HOURS_MAX)
    """Hours for which messages are also signed with the old secret."""


class RedeliverBody(Model):
    numbers: tuple[int, ...] = Field(default=(), max_length=NUMBERS_MAX)
    """Numbers of parked notices to send again. Empty: all of them."""


class WebhookView(Model):
    name: str
    owner: str
    kind: TargetKind
    place: str
    """Scheme and host of the target, or a channel."""
    triggers: tuple[Trigger, ...]
    filters: Filters
    group_seconds: float
    recoveries: bool
    paused: bool
    """True: no notices are triggered, and waiting ones are not sent."""
    created_us: int
    notices: int
    """Notices that were triggered so far."""
    waiting: int
    """Notices that wait to be delivered."""
    parked: int
    """Notices that were given up, until a user has them sent again."""
    attempts: int
    """Failed attempts in a row, since the gateway started."""
    answer: str
    """Error of the last attempt; empty if it did not fail."""
    next_us: int | None
    """Time of the next attempt. null: none is scheduled."""


class NewWebhookView(WebhookView):
    secret: str | None
    """Secret by which the receiver verifies messages, shown only once. null: messages to this kind are not signed."""


class SecretChangedView(Model):
    secret: str
    """New secret, shown only once."""
    old_until_us: int


class TriedView(Model):
    number: int
    """Number of the notice that is sent."""


class RedeliveredView(Model):
    numbers: tuple[int, ...]
    """Notices that wait to be sent again."""


class DeliveryView(Model):
    number: int
    time_us: int
    state: Literal["waiting", "delivered", "parked"]
    event_type: str
    experiment_id: int | None
    trial_id: str | None
    agent_id: str | None
    severity: Severity
    recovered: bool
    why: str
    """Reason for the notice, in one sentence."""
    attempts: int
    answer: str
    """Last answer of the target, or the reason why the notice was given up."""
    done_us: int | None
    """Time at which it was delivered or given up. null: it waits."""


class WebhookTroubleView(Model):
    name: str
    waiting: int
    """Notices that wait to be delivered."""
    parked: int
    """Notices that were given up, until a user has them sent again."""
    answer: str
    """Error of the last attempt; empty if it did not fail."""
