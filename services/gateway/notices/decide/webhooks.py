"""Decides requests of users about webhooks, and the outcome of each message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.base import from_object
from tenuto.schemas.events import EventData
from tenuto.schemas.events.notice import (
    NUMBERS_MAX,
    WebhookChanged,
    WebhookCreated,
    WebhookDelayed,
    WebhookDelivered,
    WebhookFailed,
    WebhookRedeliveryRequested,
    WebhookRemoved,
    WebhookSecretChanged,
)
from tenuto.schemas.sentences.notices import TargetRefused, Tested, TriedTooLong
from tenuto.schemas.webhooks import EventTrigger, Trigger
from tenuto.services.gateway.notices.commands import (
    ChangeWebhook,
    ChangeWebhookSecret,
    CreateWebhook,
    NoteDelivery,
    Redeliver,
    RemoveWebhook,
    TellWaits,
    TryWebhook,
)
from tenuto.services.gateway.notices.decide.triggered_notices import follow_waits, triggered
from tenuto.services.gateway.notices.policies.delivering import TRY_SECONDS
from tenuto.services.gateway.notices.policies.triggers import CAUSES, Fired
from tenuto.services.gateway.notices.state import WEBHOOKS_MAX, WEBHOOKS_PER_USER_MAX, NoticesState, Webhook
from tenuto.services.gateway.rights.permissions import CHANGES_WEBHOOK, refusal


def own(state: NoticesState, name: str, user: str) -> Webhook:
    """Webhook that the user may change. Raises Refused."""
    webhook = state.notices.webhooks.get(name)
    if webhook is None:
        raise Refused(f"There is no webhook {name}; `tenuto webhook ls` lists those that there are.", "not_found")
    what = f"Webhook {name}"
    if why := refusal(state.access, state.subject(user), CHANGES_WEBHOOK, owner=webhook.owner, what=what):
        raise Refused(why, "forbidden")
    return webhook


def create(state: NoticesState, command: CreateWebhook) -> Sequence[EventData]:
    known = state.notices.webhooks
    if command.name in known:
        raise Refused(f"There is a webhook {command.name} already; `tenuto webhook rm {command.name}` removes it.", "conflict")
    if len(known) >= WEBHOOKS_MAX:
        raise Refused(f"There are {WEBHOOKS_MAX} webhooks, and no more are kept; remove one.", "conflict")
    if sum(known[name].owner == command.user for name in sorted(known)) >= WEBHOOKS_PER_USER_MAX:
        raise Refused(f"You have {WEBHOOKS_PER_USER_MAX} webhooks, and no more are kept; remove one.", "conflict")
    _check_triggers(command.triggers)
    return [from_object(WebhookCreated, command, owner=command.user)]


def change(state: NoticesState, command: ChangeWebhook) -> Sequence[EventData]:
    webhook = own(state, command.name, command.user)
    _check_triggers(command.changes.triggers or ())
    changed = {name: value for name, value in command.changes if value is not None and value != getattr(webhook, name)}
    return [WebhookChanged(name=webhook.name, **changed)] if changed else []


def tell_waits(state: NoticesState, command: TellWaits) -> Sequence[EventData]:
    return follow_waits(state.notices, command.time_us, state.hidden_from)


def _check_triggers(triggers: Iterable[Trigger]) -> None:
    """Raises Refused for a type of event that no notice can be about."""
    for trigger in triggers:
        wrong = sorted(set(trigger.types) - CAUSES) if isinstance(trigger, EventTrigger) else []
        if wrong:
            raise Refused(
                f"{wrong[0]} is no type of event that a notice can be about; docs/webhooks.md says which are.", "invalid"
            )


def remove(state: NoticesState, command: RemoveWebhook) -> Sequence[EventData]:
    return [WebhookRemoved(name=own(state, command.name, command.user).name)]


def change_secret(state: NoticesState, command: ChangeWebhookSecret) -> Sequence[EventData]:
    webhook = own(state, command.name, command.user)
    if webhook.kind != "http":
        raise Refused(f"Messages to {webhook.kind} are not signed, so webhook {webhook.name} has no secret.", "conflict")
    return [WebhookSecretChanged(name=webhook.name, sealed_id=command.sealed_id, old_until_us=command.old_until_us)]


def try_out(state: NoticesState, command: TryWebhook) -> Sequence[EventData]:
    webhook = own(state, command.name, command.user)
    if webhook.paused:
        raise Refused(
            f"Webhook {webhook.name} is paused, so nothing is sent there: `tenuto webhook resume {webhook.name}`.", "conflict"
        )
    return [triggered(webhook, command.time_us, Fired("info", Tested(user=command.user).reason()))]


def redeliver(state: NoticesState, command: Redeliver) -> Sequence[EventData]:
    webhook = own(state, command.name, command.user)
    missing = [number for number in command.numbers if number not in webhook.parked]
    if missing:
        raise Refused(
            f"Notice {missing[0]} of webhook {webhook.name} is not parked; `tenuto webhook deliveries {webhook.name}` shows "
            "which are.",
            "not_found",
        )
    numbers = sorted(set(command.numbers)) or sorted(webhook.parked)
    return [WebhookRedeliveryRequested(webhook=webhook.name, numbers=tuple(numbers[:NUMBERS_MAX]))] if numbers else []


def note(state: NoticesState, command: NoteDelivery) -> Sequence[EventData]:
    """Outcome of a message. Nothing if the webhook was removed meanwhile, or the outcome is already recorded."""
    webhook = state.notices.webhooks.get(command.webhook)
    if webhook is None or webhook.created_us != command.created_us:
        return []
    numbers = tuple(number for number in command.numbers if number in webhook.waiting)
    if not numbers:
        return []
    if command.outcome == "delivered":
        return [from_object(WebhookDelivered, command, numbers=numbers)]
    if command.outcome == "delayed":
        return [from_object(WebhookDelayed, command, numbers=numbers)]
    if command.outcome == "refused":
        reason = TargetRefused(answer=command.answer).reason()
    else:
        reason = TriedTooLong(hours=TRY_SECONDS / 3600, answer=command.answer).reason()
    return [from_object(WebhookFailed, command, numbers=numbers, reason=reason)]


DECISIONS = decisions(create, change, tell_waits, remove, change_secret, try_out, redeliver, note)
