"""Decides which notices follow from an event, and from the time that a trial waits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from tenuto.schemas.events import EventData
from tenuto.schemas.events.notice import WebhookFailed, WebhookTriggered
from tenuto.schemas.sentences.notices import TooManyWait, TrialWaits
from tenuto.services.gateway.notices.evolve import fold
from tenuto.services.gateway.notices.policies.recoveries import well_again
from tenuto.services.gateway.notices.policies.triggers import OWN_CAUSES, Fired, experiment_id_of, first_fired, passes
from tenuto.services.gateway.notices.policies.waiting_trials import TOLD_MAX, waits
from tenuto.services.gateway.notices.state import WAITING_MAX, HiddenOf, Notices, Webhook, is_hidden


def follow(notices: Notices, data: EventData, time_us: int, hidden_of: HiddenOf | None = None) -> list[EventData]:
    """Notices that follow from an event that is folded already. `time_us`: time of the event."""
    webhooks = notices.webhooks
    if not webhooks:
        return []
    experiment_id = experiment_id_of(data)
    watched = notices.watched(experiment_id)
    found: list[EventData] = []
    for name in sorted(webhooks):
        webhook = webhooks[name]
        if webhook.paused or is_hidden(watched, experiment_id, webhook.owner, hidden_of):
            continue
        fired = first_fired(webhook, watched, data) if passes(webhook.filters, experiment_id, watched) else None
        well = well_again(webhook, data, experiment_id, watched)
        if fired is None:
            fired = well
        if fired is not None:
            notice = triggered(
                webhook,
                time_us,
                fired,
                event_type=data.TYPE,
                recovered=well is not None,
                experiment_id=experiment_id,
                trial_id=getattr(data, "trial_id", None),
                agent_id=getattr(data, "agent_id", None),
            )
            found += _queued(webhook, notice)
    return found


def follow_own(notices: Notices, events: Iterable[EventData], time_us: int, hidden_of: HiddenOf | None = None) -> list[EventData]:
    """Notices that follow from events that the gateway itself has just decided and not yet folded."""
    found: list[EventData] = []
    if not notices.webhooks:
        return found
    for data in events:
        notices = fold(notices, data, time_us)
        if data.TYPE in OWN_CAUSES:
            for item in follow(notices, data, time_us, hidden_of):
                notices = fold(notices, item, time_us)
                found.append(item)
    return found


def follow_waits(notices: Notices, now_us: int, hidden_of: HiddenOf | None = None) -> list[EventData]:
    """Notices about trials that have waited too long by now."""
    found: list[EventData] = []
    for wait in tuple(islice(waits(notices, now_us, hidden_of), TOLD_MAX)):
        webhook = notices.webhooks[wait.webhook]
        numbers = TrialWaits(waited_seconds=round((now_us - wait.since_us) / 1e6, 1), limit_seconds=wait.limit_seconds)
        fired = Fired("warning", numbers.reason())
        notice = triggered(webhook, now_us, fired, experiment_id=wait.experiment_id, trial_id=wait.trial_id, event_type="wait")
        for item in _queued(webhook, notice):
            notices = fold(notices, item, now_us)
            found.append(item)
    return found


def triggered(
    webhook: Webhook,
    time_us: int,
    fired: Fired,
    *,
    event_type: str = "",
    recovered: bool = False,
    experiment_id: int | None = None,
    trial_id: str | None = None,
    agent_id: str | None = None,
) -> WebhookTriggered:
    """Next notice of a webhook. It joins the last group if that began less than `group_seconds` ago."""
    joins = webhook.group_seconds > 0 and time_us < webhook.group_until_us
    group_us = int(webhook.group_seconds * 1e6)
    return WebhookTriggered(
        webhook=webhook.name,
        number=webhook.number + 1,
        event_type=event_type,
        experiment_id=experiment_id,
        trial_id=trial_id,
        agent_id=agent_id,
        severity=fired.severity,
        recovered=recovered,
        group=webhook.group if joins else webhook.group + 1,
        group_until_us=webhook.group_until_us if joins else time_us + group_us,
        reason=fired.reason,
    )


def _queued(webhook: Webhook, notice: WebhookTriggered) -> list[EventData]:
    """The notice, followed at once by its failure if too many wait."""
    if len(webhook.waiting) < WAITING_MAX:
        return [notice]
    reason = TooManyWait(waiting=WAITING_MAX).reason()
    return [notice, WebhookFailed(webhook=webhook.name, numbers=(notice.number,), attempts=0, reason=reason)]
