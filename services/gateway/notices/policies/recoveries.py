"""Detects when a problem that a notice reported is over."""

from __future__ import annotations

from immutables import Map

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.sentences.notices import MetricBack, MetricBeyond, MetricStalled, Recovered, TrialWaits, WaitOver
from tenuto.schemas.webhooks import MetricTrigger, StallTrigger, WaitTrigger
from tenuto.services.gateway.notices.policies.triggers import Fired, mark_key, metric_of
from tenuto.services.gateway.notices.state import TROUBLES_MAX, Trouble, WatchedExperiment, Webhook

PASSING = frozenset(rule for kind in (MetricBeyond, MetricStalled, TrialWaits) for rule in kind.RULES)
"""Rules whose troubles end when a metric is back within its limit or a trial starts. Others end with the experiment."""


def opened(troubles: Map[str, Trouble], subject: str, data: WebhookTriggered) -> Map[str, Trouble]:
    """Troubles of a webhook after a notice."""
    before = troubles.get(subject)
    if data.recovered:
        return troubles if before is None else troubles.delete(subject)
    if data.severity == "info" or (before is None and len(troubles) >= TROUBLES_MAX):
        return troubles
    passing = data.reason.rule in PASSING and (before is None or before.passing)
    return troubles.set(subject, Trouble(data.number if before is None else before.number, passing))


def well_again(webhook: Webhook, data: EventData, experiment_id: int | None, watched: WatchedExperiment | None) -> Fired | None:
    """Recovery that the event shows; None if no notice reported a problem, a part of it persists, or the webhook
    does not send recoveries."""
    if not webhook.recoveries:
        return None
    if isinstance(data, AgentJoined):
        return Fired("info", Recovered().reason()) if f"agent/{data.agent_id}" in webhook.troubles else None
    trouble = webhook.troubles.get(f"experiment/{experiment_id}")
    if trouble is None or experiment_id is None:
        return None
    if isinstance(data, (ExperimentCompleted, ExperimentCanceled)):
        return Fired("info", Recovered().reason())
    if not trouble.passing or not isinstance(data, (ValidationReported, AllocationGranted)):
        return None
    back = _back(webhook, data, watched)
    return None if back is None or _beyond(webhook, experiment_id) else back


def _back(webhook: Webhook, data: ValidationReported | AllocationGranted, watched: WatchedExperiment | None) -> Fired | None:
    """Recovery by the first of the trial's marks that was beyond its limit and no longer is; None if there is none."""
    for index, trigger in enumerate(webhook.triggers):
        mark = webhook.marks.get(mark_key(index, data.trial_id))
        if mark is None or mark.beyond or not mark.was_beyond:
            continue
        if isinstance(trigger, WaitTrigger) and isinstance(data, AllocationGranted):
            return Fired("info", WaitOver().reason())
        if isinstance(trigger, (MetricTrigger, StallTrigger)) and isinstance(data, ValidationReported):
            name = metric_of(trigger, watched)
            if name in data.metrics:
                back = MetricBack(metric=name, value=data.metrics[name], batches=data.batches)
                return Fired("info", back.reason())
    return None


def _beyond(webhook: Webhook, experiment_id: int) -> bool:
    """True if a metric of the experiment is beyond its limit, or one of its trials waits for too long."""
    return any(
        mark.beyond and experiment_of(key.partition("/")[2]) == experiment_id for key, mark in webhook.marks.items()
    )  # the order does not matter to `any`
