"""What the REST door is sent and answers about webhooks. No answer has a secret, but for the one that makes it."""

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
    """A notice is sent about what any of them fits; of an event at most one."""
    filters: Filters = Filters()
    group_seconds: float = Field(default=0.0, ge=0, le=GROUP_SECONDS_MAX)
    """What is triggered within so long goes into one message. 0: each notice is a message."""
    recoveries: bool | None = None
    """A notice follows when what there was a notice about is well again. null: only for PagerDuty, which resolves its alert."""


class ChangedWebhookBody(Model):
    """What is left out, or null, stays as it is."""

    triggers: tuple[Trigger, ...] | None = Field(default=None, min_length=1, max_length=TRIGGERS_MAX)
    """In place of all that there are. Metrics, stalls and waits begin anew: what is beyond a limit is told again."""
    filters: Filters | None = None
    """In place of all that there are."""
    group_seconds: float | None = Field(default=None, ge=0, le=GROUP_SECONDS_MAX)
    recoveries: bool | None = None
    paused: bool | None = None
    """True: nothing triggers a notice, and what waits is not sent. False: it is sent, and tried for a day from now on."""


class ExplanationView(Model):
    event_id: str
    event_type: str
    position: int
    number: int | None
    """Of the notice that was triggered by the event. null: there is none."""
    sentences: tuple[str, ...]
    """Why: one for each filter and trigger that did not fit, or the reason of the notice."""


class RotateBody(Model):
    secret: str | None = Field(default=None, pattern=r"^whsec_[A-Za-z0-9+/]{32,88}={0,2}$")
    """null: the gateway makes one."""
    keep_old_hours: float = Field(default=24.0, ge=0, le=KEEP_OLD_HOURS_MAX)
    """Messages are signed with the old secret, too, for so long."""


class RedeliverBody(Model):
    numbers: tuple[int, ...] = Field(default=(), max_length=NUMBERS_MAX)
    """Of parked notices. Empty: all of them."""


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
    """True: nothing triggers a notice, and what waits is not sent."""
    created_us: int
    notices: int
    """Triggered so far."""
    waiting: int
    """Not delivered yet."""
    parked: int
    """Given up, until somebody has them sent again."""
    attempts: int
    """In a row that failed, since the gateway started."""
    answer: str
    """Of the last one that failed; empty where it did not."""
    next_us: int | None
    """When the next attempt is made. null: none is waited for."""


class NewWebhookView(WebhookView):
    secret: str | None
    """By which the receiver knows that a message is genuine; shown this once. null: messages to this kind are not signed."""


class SecretChangedView(Model):
    secret: str
    """Shown this once."""
    old_until_us: int


class TriedView(Model):
    number: int
    """Of the notice that is sent."""


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
    """One sentence."""
    attempts: int
    answer: str
    """What the target said last, or why the notice was given up."""
    done_us: int | None
    """When it was delivered or given up."""


class WebhookTroubleView(Model):
    name: str
    waiting: int
    """Notices that are not delivered yet."""
    parked: int
    """Notices that were given up, until somebody has them sent again."""
    answer: str
    """What the target said last; empty where it takes what is sent."""
