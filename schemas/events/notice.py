"""Webhooks, what they were triggered by, and what became of each notice. Owner: gateway. Streams: request/cluster and
notice/<webhook>."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, Reason, event
from tenuto.schemas.events.request import ClusterRequest
from tenuto.schemas.webhooks import (
    GROUP_SECONDS_MAX,
    TRIGGERS_MAX,
    WEBHOOK_NAME_PATTERN,
    Filters,
    Severity,
    TargetKind,
    Trigger,
)

NUMBERS_MAX = 1_000
"""Notices in one event: a grouped message, or what is sent again."""


@event("WebhookCreated")
class WebhookCreated(ClusterRequest):
    """A webhook was created and receives notices from now on. Its exact address and its secrets are not part of the record."""

    name: str = Field(pattern=WEBHOOK_NAME_PATTERN)
    owner: str
    """User who made the webhook, and who may change it, besides admins."""
    kind: TargetKind
    place: str = Field(max_length=256)
    """Part of the target's address that may be shown: scheme and host, or a channel."""
    sealed_id: str
    """Id under which its addresses and secrets are kept, encrypted and outside the record."""
    triggers: tuple[Trigger, ...] = Field(min_length=1, max_length=TRIGGERS_MAX)
    filters: Filters = Filters()
    group_seconds: float = Field(default=0.0, ge=0, le=GROUP_SECONDS_MAX)
    """Seconds during which triggered notices are collected into one message. 0: each notice is a message."""
    recoveries: bool = False
    """True: a notice also follows when the state that it was about is well again."""


@event("WebhookSecretChanged")
class WebhookSecretChanged(ClusterRequest):
    """Messages are signed with a new secret, and for some time with the old one as well."""

    name: str
    sealed_id: str
    """Id that replaces the `sealed_id` of WebhookCreated."""
    old_until_us: int


class WebhookChanges(Model):
    """Common fields of WebhookChanged and the request for it. None: unchanged."""

    triggers: tuple[Trigger, ...] | None = Field(
        default=None, min_length=1, max_length=TRIGGERS_MAX, exclude_if=lambda value: value is None
    )
    """Metrics, stalls and waits begin anew: what is beyond a limit is told again."""
    filters: Filters | None = Field(default=None, exclude_if=lambda value: value is None)
    group_seconds: float | None = Field(default=None, ge=0, le=GROUP_SECONDS_MAX, exclude_if=lambda value: value is None)
    recoveries: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    paused: bool | None = Field(default=None, exclude_if=lambda value: value is None)
    """True: nothing triggers a notice, and what waits is not sent, until it is resumed."""


class _WebhookRequest(ClusterRequest):
    name: str


@event("WebhookChanged")
class WebhookChanged(WebhookChanges, _WebhookRequest):
    """Settings of a webhook changed. None: unchanged."""


@event("WebhookRemoved")
class WebhookRemoved(ClusterRequest):
    """A webhook was removed; its pending notices are dropped."""

    name: str


class NoticeData(EventData):
    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "notice"

    webhook: str

    def stream_key(self) -> str:
        return self.webhook


@event("WebhookTriggered")
class WebhookTriggered(NoticeData):
    """A notice is to be sent, about the event that this was decided on."""

    number: int = Field(ge=1)
    """Sequence number of this notice among those of its webhook."""
    event_type: str = ""
    """Type of the event that the notice is about. `wait`: a trial that waits, which is no event. Empty: a test."""
    experiment_id: int | None = None
    trial_id: str | None = None
    agent_id: str | None = None
    severity: Severity
    recovered: bool = False
    """True: what there was a notice about is well again."""
    group: int = Field(ge=1)
    """Notices of one group go into one message."""
    group_until_us: int
    """Time at which the group is sent, in microseconds since 1970."""
    reason: Reason


@event("WebhookDelivered")
class WebhookDelivered(NoticeData):
    """The target has taken a message with these notices."""

    numbers: tuple[int, ...] = Field(min_length=1, max_length=NUMBERS_MAX)
    message_id: str
    attempts: int = Field(ge=1)
    """Number of attempts since the gateway's start."""
    answer: str
    """Answer of the target, such as `HTTP 204`."""
    reference: str = Field(default="", max_length=256, exclude_if=lambda value: not value)
    """Id that the target gave the message, for later updates. Empty: none."""


@event("WebhookDelayed")
class WebhookDelayed(NoticeData):
    """The target does not take messages, and is not tried again before `resume_us`. Recorded for long waits only."""

    numbers: tuple[int, ...] = Field(min_length=1, max_length=NUMBERS_MAX)
    attempts: int = Field(ge=1)
    resume_us: int
    answer: str


@event("WebhookFailed")
class WebhookFailed(NoticeData):
    """Notices could not be sent and are parked until a user has them sent again."""

    numbers: tuple[int, ...] = Field(min_length=1, max_length=NUMBERS_MAX)
    attempts: int = Field(ge=0)
    reason: Reason


@event("WebhookRedeliveryRequested")
class WebhookRedeliveryRequested(NoticeData):
    """These parked notices are sent again."""

    numbers: tuple[int, ...] = Field(min_length=1, max_length=NUMBERS_MAX)
