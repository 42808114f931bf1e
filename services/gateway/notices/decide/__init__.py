"""Decisions about webhooks and their notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.services.gateway.notices import commands
from tenuto.services.gateway.notices.decide import webhooks

DECISIONS: Mapping[type, Callable[[Any, Any], Sequence[EventData]]] = {
    commands.CreateWebhook: webhooks.create,
    commands.ChangeWebhook: webhooks.change,
    commands.TellWaits: webhooks.tell_waits,
    commands.RemoveWebhook: webhooks.remove,
    commands.ChangeWebhookSecret: webhooks.change_secret,
    commands.TryWebhook: webhooks.try_out,
    commands.Redeliver: webhooks.redeliver,
    commands.NoteDelivery: webhooks.note,
}
"""Command -> what decides it."""
