"""Commands about webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.webhooks import Filters, TargetKind, Trigger
from tenuto.services.gateway.rights.commands import UserCommand


@dataclass(frozen=True, kw_only=True)
class CreateWebhook(UserCommand):
    name: str
    kind: TargetKind
    place: str
    """What may be shown of the target."""
    triggers: tuple[Trigger, ...]
    filters: Filters
    group_seconds: float
    recoveries: bool
    sealed_id: str
    """Under which id its addresses and secrets are kept, encrypted and outside the record."""


@dataclass(frozen=True, kw_only=True)
class ChangeWebhook(UserCommand):
    """None: as before."""

    name: str
    triggers: tuple[Trigger, ...] | None = None
    filters: Filters | None = None
    group_seconds: float | None = None
    recoveries: bool | None = None
    paused: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RemoveWebhook(UserCommand):
    name: str


@dataclass(frozen=True, kw_only=True)
class ChangeWebhookSecret(UserCommand):
    name: str
    sealed_id: str
    old_until_us: int
    """Messages are signed with the old secret, too, until then."""


@dataclass(frozen=True, kw_only=True)
class TryWebhook(UserCommand):
    """A notice that is about nothing."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Redeliver(UserCommand):
    name: str
    numbers: tuple[int, ...] = ()
    """Of parked notices. Empty: all of them."""


@dataclass(frozen=True, kw_only=True)
class TellWaits:
    """Trials that wait for too long at this time are told of: the gateway itself looks."""

    id: UUID
    time_us: int


@dataclass(frozen=True, kw_only=True)
class NoteDelivery:
    """What became of a message: the gateway itself tells."""

    id: UUID
    time_us: int
    webhook: str
    created_us: int
    """Of the webhook that it was sent for: another one may have the name by now."""
    numbers: tuple[int, ...]
    outcome: Literal["delivered", "delayed", "refused", "too_late"]
    attempts: int
    answer: str
    message_id: str = ""
    reference: str = ""
    resume_us: int = 0
