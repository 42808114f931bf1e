"""Webhooks as users see them, and those that have problems."""

from __future__ import annotations

from tenuto.kernel.reactions import ReceiverProgress
from tenuto.schemas.base import from_object
from tenuto.services.gateway.notices.bodies import WebhookTroubleView, WebhookView
from tenuto.services.gateway.notices.door import NoticesDoor
from tenuto.services.gateway.notices.state import Webhook

TROUBLES_MAX = 20


def troubles(door: NoticesDoor) -> tuple[WebhookTroubleView, ...]:
    """Webhooks with parked notices or a failing target, of those that the user sees."""
    known = door.state.notices.webhooks
    views = (view_of(door, known[name]) for name in sorted(known) if is_seen(door, known[name]))
    found = [item for item in views if item.parked or item.answer or item.next_us]
    return tuple(from_object(WebhookTroubleView, item) for item in found[:TROUBLES_MAX])


def is_seen(door: NoticesDoor, webhook: Webhook) -> bool:
    """True for the user's own webhooks, and for all if the user sees every workspace: notices quote what they are about."""
    return door.shows_own(webhook.owner) or not door.sight().hidden


def view_of(door: NoticesDoor, webhook: Webhook) -> WebhookView:
    sender = door.deliveries.sender(webhook.name)
    progress = ReceiverProgress() if sender is None else sender.progress
    return from_object(
        WebhookView,
        webhook,
        notices=webhook.number,
        waiting=len(webhook.waiting),
        parked=len(webhook.parked),
        attempts=progress.attempts,
        answer=progress.problem,
        next_us=progress.next_us or webhook.resume_us or None,
    )
