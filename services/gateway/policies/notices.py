"""Folds what notices are about and what became of them, and decides which follow from an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from immutables import Map

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.notice import (
    NoticeData,
    WebhookCreated,
    WebhookDelayed,
    WebhookDelivered,
    WebhookFailed,
    WebhookRedeliveryRequested,
    WebhookRemoved,
    WebhookSecretChanged,
    WebhookTriggered,
)
from tenuto.schemas.events.request import ExperimentDescribed, ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.ids import name_id
from tenuto.schemas.sentences.notices import Recovered, TooManyWait
from tenuto.services.gateway.policies.notice_state import (
    PARKED_MAX,
    REFERENCES_MAX,
    TROUBLES_MAX,
    WAITING_MAX,
    Notice,
    Notices,
    Watched,
    Webhook,
)
from tenuto.services.gateway.policies.triggers import (
    Fired,
    experiment_id_of,
    first_fired,
    marked,
    passes,
    without_experiment,
)

OF_WEBHOOKS: tuple[type[EventData], ...] = (
    WebhookCreated,
    WebhookSecretChanged,
    WebhookRemoved,
    WebhookTriggered,
    WebhookDelivered,
    WebhookDelayed,
    WebhookFailed,
    WebhookRedeliveryRequested,
)
ENDS = (ExperimentCompleted, ExperimentFailed, ExperimentCanceled)


def fold(notices: Notices, data: EventData, time_us: int) -> Notices:
    """Events of other services, and the gateway's own. `time_us`: of the event."""
    if isinstance(data, ExperimentSubmitted):
        return replace(notices, experiments=notices.experiments.set(data.experiment_id, _watched(data)))
    if isinstance(data, ExperimentDescribed):
        return _fold_description(notices, data)
    if isinstance(data, ENDS):
        return _fold_end(notices, data.experiment_id)
    if isinstance(data, WebhookCreated):
        return _with(notices, _created(data, time_us))
    if isinstance(data, WebhookRemoved):
        known = data.name in notices.webhooks
        return replace(notices, webhooks=notices.webhooks.delete(data.name)) if known else notices
    if isinstance(data, WebhookSecretChanged) and data.name in notices.webhooks:
        return _with(notices, replace(notices.webhooks[data.name], sealed_id=data.sealed_id))
    if isinstance(data, NoticeData) and data.webhook in notices.webhooks:
        return _with(notices, _fold_notice(notices.webhooks[data.webhook], data, time_us))
    if isinstance(data, ValidationReported):
        return _fold_validation(notices, data)
    return notices


def _with(notices: Notices, webhook: Webhook) -> Notices:
    return replace(notices, webhooks=notices.webhooks.set(webhook.name, webhook))


def _watched(data: ExperimentSubmitted) -> Watched:
    config = data.config
    return Watched(
        user=data.user,
        workspace=config.resources.workspace,
        labels=tuple(config.labels),
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
    )


def _fold_description(notices: Notices, data: ExperimentDescribed) -> Notices:
    """Filters ask for the labels that the experiment has now."""
    watched = notices.experiments.get(data.experiment_id)
    if watched is None or data.labels is None:
        return notices
    return replace(notices, experiments=notices.experiments.set(data.experiment_id, replace(watched, labels=data.labels)))


def _created(data: WebhookCreated, time_us: int) -> Webhook:
    return Webhook(
        name=data.name,
        owner=data.owner,
        kind=data.kind,
        place=data.place,
        triggers=data.triggers,
        filters=data.filters,
        group_seconds=data.group_seconds,
        recoveries=data.recoveries,
        created_us=time_us,
        sealed_id=data.sealed_id,
    )


def _fold_end(notices: Notices, experiment_id: int) -> Notices:
    """Of the experiment only what a notice about its end needs is kept, until the next one ends."""
    watched = notices.experiments.get(experiment_id)
    if watched is None:
        return notices
    webhooks = notices.webhooks
    for name in sorted(webhooks):
        webhook = webhooks[name]
        left = without_experiment(webhook.marks, experiment_id) if webhook.marks else webhook.marks
        if len(left) < len(webhook.marks):
            webhooks = webhooks.set(name, replace(webhook, marks=left))
    experiments = notices.experiments.delete(experiment_id)
    return replace(notices, webhooks=webhooks, experiments=experiments, ended=(experiment_id, watched))


def _fold_validation(notices: Notices, data: ValidationReported) -> Notices:
    webhooks, experiment_id = notices.webhooks, experiment_id_of(data)
    watched = notices.watched(experiment_id)
    for name in sorted(webhooks):
        webhook = webhooks[name]
        if not passes(webhook.filters, experiment_id, watched):
            continue
        marks = marked(webhook, watched, data)
        if marks is not webhook.marks:
            webhooks = webhooks.set(name, replace(webhook, marks=marks))
    return notices if webhooks is notices.webhooks else replace(notices, webhooks=webhooks)


def _fold_notice(webhook: Webhook, data: NoticeData, time_us: int) -> Webhook:
    if isinstance(data, WebhookTriggered):
        return _fold_triggered(webhook, data, time_us)
    if isinstance(data, WebhookDelivered):
        about = sorted({webhook.waiting[number].experiment_id or 0 for number in data.numbers if number in webhook.waiting})
        references = webhook.references
        if data.reference and len(about) == 1 and about[0]:
            references = _bounded(references.set(about[0], data.reference), REFERENCES_MAX)
        return replace(webhook, waiting=_without(webhook.waiting, data.numbers), references=references, resume_us=0)
    if isinstance(data, WebhookDelayed):
        return replace(webhook, resume_us=data.resume_us)
    if isinstance(data, WebhookFailed):
        given_up = {number: webhook.waiting[number] for number in data.numbers if number in webhook.waiting}
        parked = _bounded(webhook.parked.update(given_up), PARKED_MAX)
        return replace(webhook, waiting=_without(webhook.waiting, data.numbers), parked=parked, resume_us=0)
    if isinstance(data, WebhookRedeliveryRequested):
        again = {
            number: replace(webhook.parked[number], queued_us=time_us) for number in data.numbers if number in webhook.parked
        }
        waiting = webhook.waiting.update(again)
        return replace(webhook, waiting=waiting, parked=_without(webhook.parked, data.numbers))
    return webhook


def _fold_triggered(webhook: Webhook, data: WebhookTriggered, time_us: int) -> Webhook:
    notice = Notice(
        number=data.number,
        id=str(name_id("notice", data.webhook, str(webhook.created_us), str(data.number))),
        time_us=time_us,
        queued_us=time_us,
        group=data.group,
        group_until_us=data.group_until_us,
        event_type=data.event_type,
        severity=data.severity,
        recovered=data.recovered,
        reason=data.reason.to_json().decode(),
        experiment_id=data.experiment_id,
        trial_id=data.trial_id,
        agent_id=data.agent_id,
    )
    troubles = webhook.troubles
    if data.recovered:
        troubles = troubles.delete(notice.subject) if notice.subject in troubles else troubles
    elif data.severity != "info" and notice.subject not in troubles and len(troubles) < TROUBLES_MAX:
        troubles = troubles.set(notice.subject, data.number)
    return replace(
        webhook,
        number=data.number,
        group=data.group,
        group_until_us=data.group_until_us,
        waiting=webhook.waiting.set(data.number, notice),
        troubles=troubles,
    )


def _without(kept: Map[int, Notice], numbers: Sequence[int]) -> Map[int, Notice]:
    for number in numbers:
        if number in kept:
            kept = kept.delete(number)
    return kept


def _bounded(kept: Map, most: int) -> Map:  # type: ignore[type-arg]
    """Without the smallest keys, where there are more than so many."""
    if len(kept) <= most:
        return kept
    for key in sorted(kept)[: len(kept) - most]:
        kept = kept.delete(key)
    return kept


def follow(notices: Notices, event: Event) -> list[EventData]:
    """The notices that follow from an event of another service, which is folded already."""
    webhooks = notices.webhooks
    if not webhooks:
        return []
    data = event.data
    experiment_id = experiment_id_of(data)
    watched = notices.watched(experiment_id)
    found: list[EventData] = []
    for name in sorted(webhooks):
        webhook = webhooks[name]
        fired = first_fired(webhook, watched, event) if passes(webhook.filters, experiment_id, watched) else None
        well = _well_again(webhook, data, experiment_id)
        if fired is None and well:
            fired = Fired("info", Recovered().reason())
        if fired is not None:
            found += _queued(webhook, _noticed(webhook, event, fired, well, experiment_id))
    return found


def _well_again(webhook: Webhook, data: EventData, experiment_id: int | None) -> bool:
    """Whether the event ends what the webhook had a notice about."""
    if not webhook.recoveries:
        return False
    if isinstance(data, (ExperimentCompleted, ExperimentCanceled)):
        return f"experiment/{experiment_id}" in webhook.troubles
    return isinstance(data, AgentJoined) and f"agent/{data.agent_id}" in webhook.troubles


def _noticed(webhook: Webhook, event: Event, fired: Fired, well: bool, experiment_id: int | None) -> WebhookTriggered:
    data = event.data
    return triggered(
        webhook,
        event.time_us,
        fired,
        event_type=event.type,
        recovered=well,
        experiment_id=experiment_id,
        trial_id=getattr(data, "trial_id", None),
        agent_id=getattr(data, "agent_id", None),
    )


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
    """Its next notice. What comes within `group_seconds` of the first of a group belongs to it."""
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
    """The notice; and at once its end, where too many wait."""
    if len(webhook.waiting) < WAITING_MAX:
        return [notice]
    reason = TooManyWait(waiting=WAITING_MAX).reason()
    return [notice, WebhookFailed(webhook=webhook.name, numbers=(notice.number,), attempts=0, reason=reason)]
