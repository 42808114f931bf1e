"""Folds events about experiments, webhooks and notices into the state of notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.kernel.folding import DraftEnvelope, Envelope, Fold, Folds, WithEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.notice import (
    NoticeData,
    WebhookChanged,
    WebhookCreated,
    WebhookDelayed,
    WebhookDelivered,
    WebhookFailed,
    WebhookRedeliveryRequested,
    WebhookRemoved,
    WebhookSecretChanged,
    WebhookTriggered,
)
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import ExperimentDescribed, ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialStopped
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.ids import name_id
from tenuto.schemas.sentences.notices import TrialWaits
from tenuto.services.gateway.notices.policies.recoveries import opened
from tenuto.services.gateway.notices.policies.triggers import experiment_id_of, marked, passes, without_experiment, without_trial
from tenuto.services.gateway.notices.policies.waiting_trials import OF_DEMANDS, demanding, marked_over, marked_told
from tenuto.services.gateway.notices.state import (
    PARKED_MAX,
    REFERENCES_MAX,
    Notice,
    Notices,
    NoticesState,
    WatchedExperiment,
    Webhook,
)

ENDS = (ExperimentCompleted, ExperimentFailed, ExperimentCanceled)


def _with(notices: Notices, webhook: Webhook) -> Notices:
    return replace(notices, webhooks=notices.webhooks.set(webhook.name, webhook))


def submitted(notices: Notices, data: ExperimentSubmitted) -> Notices:
    config = data.config
    watched = WatchedExperiment(
        user=data.user,
        workspace=config.resources.workspace,
        labels=tuple(config.labels),
        metric=config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
    )
    return replace(notices, experiments=notices.experiments.set(data.experiment_id, watched))


def described(notices: Notices, data: ExperimentDescribed) -> Notices:
    """Updates the labels, as filters compare those that the experiment has now."""
    watched = notices.experiments.get(data.experiment_id)
    if watched is None or data.labels is None:
        return notices
    return replace(notices, experiments=notices.experiments.set(data.experiment_id, replace(watched, labels=data.labels)))


def demanded(notices: Notices, data: EventData, envelope: Envelope) -> Notices:
    experiment_id = experiment_id_of(data)
    watched = None if experiment_id is None else notices.experiments.get(experiment_id)
    if watched is None or experiment_id is None:
        return notices
    now = demanding(watched, data, envelope.time_us)
    if now is not watched:
        notices = replace(notices, experiments=notices.experiments.set(experiment_id, now))
    if not isinstance(data, (AllocationGranted, TrialStopped)):
        return notices
    webhooks = notices.webhooks
    for name in sorted(webhooks):
        webhook = webhooks[name]
        if not webhook.marks:
            continue
        stopped = isinstance(data, TrialStopped)
        left = without_trial(webhook, data.trial_id) if stopped else marked_over(webhook, data.trial_id)
        if left is not webhook:
            webhooks = webhooks.set(name, left)
    return notices if webhooks is notices.webhooks else replace(notices, webhooks=webhooks)


def ended(notices: Notices, data: ExperimentCompleted | ExperimentFailed | ExperimentCanceled) -> Notices:
    """Keeps of the experiment only what a notice about its end needs, until the next one ends."""
    experiment_id = data.experiment_id
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


def validated(notices: Notices, data: ValidationReported) -> Notices:
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


def created(notices: Notices, data: WebhookCreated, envelope: Envelope) -> Notices:
    webhook = Webhook(
        name=data.name,
        owner=data.owner,
        kind=data.kind,
        place=data.place,
        triggers=data.triggers,
        filters=data.filters,
        group_seconds=data.group_seconds,
        recoveries=data.recoveries,
        created_us=envelope.time_us,
        sealed_id=data.sealed_id,
    )
    return _with(notices, webhook)


def changed(webhook: Webhook, data: WebhookChanged, time_us: int) -> Webhook:
    if data.triggers is not None:
        webhook = replace(webhook, triggers=data.triggers, marks=Map())
    if data.filters is not None:
        webhook = replace(webhook, filters=data.filters)
    if data.group_seconds is not None:
        webhook = replace(webhook, group_seconds=data.group_seconds)
    if data.recoveries is not None:
        webhook = replace(webhook, recoveries=data.recoveries)
    if data.paused is None or data.paused == webhook.paused:
        return webhook
    # Notices that waited meanwhile have a day from now on, as their target was not even tried.
    waiting = webhook.waiting if data.paused else _queued_anew(webhook.waiting, time_us)
    return replace(webhook, paused=data.paused, waiting=waiting)


def secret_changed(webhook: Webhook, data: WebhookSecretChanged, _: int) -> Webhook:
    return replace(webhook, sealed_id=data.sealed_id)


def removed(notices: Notices, data: WebhookRemoved) -> Notices:
    known = data.name in notices.webhooks
    return replace(notices, webhooks=notices.webhooks.delete(data.name)) if known else notices


def _queued_anew(waiting: Map[int, Notice], time_us: int) -> Map[int, Notice]:
    return Map({number: replace(notice, queued_us=time_us) for number, notice in waiting.items()})


def triggered(webhook: Webhook, data: WebhookTriggered, time_us: int) -> Webhook:
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
    if data.reason.rule in TrialWaits.RULES and data.trial_id is not None:
        webhook = marked_told(webhook, data.trial_id, float(str(data.reason.numbers["limit_seconds"])))
    return replace(
        webhook,
        number=data.number,
        group=data.group,
        group_until_us=data.group_until_us,
        waiting=webhook.waiting.set(data.number, notice),
        troubles=opened(webhook.troubles, notice.subject, data),
    )


def delivered(webhook: Webhook, data: WebhookDelivered, _: int) -> Webhook:
    about = sorted({webhook.waiting[number].experiment_id or 0 for number in data.numbers if number in webhook.waiting})
    references = webhook.references
    # A message about several experiments is not updated by later notices about one of them.
    if data.reference and len(about) == 1 and about[0]:
        references = _bounded(references.set(about[0], data.reference), REFERENCES_MAX)
    return replace(webhook, waiting=_without(webhook.waiting, data.numbers), references=references, resume_us=0)


def delayed(webhook: Webhook, data: WebhookDelayed, _: int) -> Webhook:
    return replace(webhook, resume_us=data.resume_us)


def failed(webhook: Webhook, data: WebhookFailed, _: int) -> Webhook:
    given_up = {number: webhook.waiting[number] for number in data.numbers if number in webhook.waiting}
    parked = _bounded(webhook.parked.update(given_up), PARKED_MAX)
    return replace(webhook, waiting=_without(webhook.waiting, data.numbers), parked=parked, resume_us=0)


def redelivered(webhook: Webhook, data: WebhookRedeliveryRequested, time_us: int) -> Webhook:
    again = {number: replace(webhook.parked[number], queued_us=time_us) for number in data.numbers if number in webhook.parked}
    return replace(webhook, waiting=webhook.waiting.update(again), parked=_without(webhook.parked, data.numbers))


def _without(kept: Map[int, Notice], numbers: Sequence[int]) -> Map[int, Notice]:
    for number in numbers:
        if number in kept:
            kept = kept.delete(number)
    return kept


def _bounded(kept: Map, most: int) -> Map:  # type: ignore[type-arg]
    """The map, without its smallest keys if it has more than `most`."""
    if len(kept) <= most:
        return kept
    for key in sorted(kept)[: len(kept) - most]:
        kept = kept.delete(key)
    return kept


def _of_webhook(fold: Callable[[Webhook, Any, int], Webhook]) -> WithEnvelope[Notices]:
    """The fold of an event about one webhook, which may have been removed."""

    def folded(notices: Notices, data: Any, envelope: Envelope) -> Notices:
        webhook = notices.webhooks.get(data.webhook if isinstance(data, NoticeData) else data.name)
        return notices if webhook is None else _with(notices, fold(webhook, data, envelope.time_us))

    return WithEnvelope(folded)


_FOLDS: Folds[Notices] = Folds(
    "gateway",
    {
        ExperimentSubmitted: submitted,
        ExperimentDescribed: described,
        ExperimentCompleted: ended,
        ExperimentFailed: ended,
        ExperimentCanceled: ended,
        ValidationReported: validated,
        **dict.fromkeys(OF_DEMANDS, WithEnvelope(demanded)),
        WebhookCreated: WithEnvelope(created),
        WebhookChanged: _of_webhook(changed),
        WebhookSecretChanged: _of_webhook(secret_changed),
        WebhookRemoved: removed,
        WebhookTriggered: _of_webhook(triggered),
        WebhookDelivered: _of_webhook(delivered),
        WebhookDelayed: _of_webhook(delayed),
        WebhookFailed: _of_webhook(failed),
        WebhookRedeliveryRequested: _of_webhook(redelivered),
    },
)


def fold(notices: Notices, data: EventData, time_us: int) -> Notices:
    """Notices after an event of the gateway or of another service. `time_us`: time of the event."""
    return _FOLDS.apply(notices, data, DraftEnvelope(time_us))


def notices_changed(state: NoticesState, data: EventData, envelope: Envelope) -> NoticesState:
    notices = _FOLDS.apply(state.notices, data, envelope)
    return state if notices is state.notices else replace(state, notices=notices)


FOLDS: Mapping[type[EventData], Fold[Any]] = dict.fromkeys(_FOLDS.kinds, WithEnvelope(notices_changed))
"""Folds of notices, applied after those of every other subject, so that the state already has what a notice is about."""
