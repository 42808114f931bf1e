"""Commands about webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.events.notice import WebhookChanges
from tenuto.schemas.webhooks import Filters, TargetKind, Trigger
from tenuto.services.gateway.rights.commands import GatewayCommand, UserCommand

Outcome = Literal["delivered", "delayed", "refused", "too_late"]
"""Outcome of a message: sent, tried again after a recorded wait, or parked."""


@dataclass(frozen=True, kw_only=True)
class CreateWebhook(UserCommand):
    name: str
    kind: TargetKind
    place: str
    """Part of the target's address that may be shown."""
    triggers: tuple[Trigger, ...]
    filters: Filters
    group_seconds: float
    recoveries: bool
    sealed_id: str
    """Id under which its addresses and secrets are kept, encrypted and outside the log."""


@dataclass(frozen=True, kw_only=True)
class ChangeWebhook(UserCommand):
    name: str
    changes: WebhookChanges


@dataclass(frozen=True, kw_only=True)
class RemoveWebhook(UserCommand):
    name: str


@dataclass(frozen=True, kw_only=True)
class ChangeWebhookSecret(UserCommand):
    name: str
    sealed_id: str
    old_until_us: int
    """Time until which messages are also signed with the old secret."""


@dataclass(frozen=True, kw_only=True)
class TryWebhook(UserCommand):
    """Sends a test notice, which is about no event."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Redeliver(UserCommand):
    name: str
    numbers: tuple[int, ...] = ()
    """Numbers of parked notices to send again. Empty: all of them."""


@dataclass(frozen=True, kw_only=True)
class TellWaits(GatewayCommand):
    """Sends notices about trials that have waited too long at this time; the gateway itself submits it."""


@dataclass(frozen=True, kw_only=True)
class NoteDelivery(GatewayCommand):
    """Records the outcome of a message; the gateway itself submits it."""

    webhook: str
    created_us: int
    """Creation time of the webhook that the message was for: another one may have the name by now."""
    numbers: tuple[int, ...]
    outcome: Outcome
    attempts: int
    answer: str
    message_id: str = ""
    reference: str = ""
    resume_us: int = 0
