"""Trials that wait for slots, since when, and the waits that a webhook tells of while they last, by recorded times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.schemas.events.request import ExperimentPauseRequested, ExperimentResumeRequested
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.webhooks import WaitTrigger
from tenuto.services.gateway.notices.policies.triggers import mark_key, passes
from tenuto.services.gateway.notices.state import (
    MARKS_MAX,
    HiddenOf,
    Notices,
    SlotDemand,
    TriggerStatus,
    WatchedExperiment,
    Webhook,
    is_hidden,
)

OF_DEMANDS: tuple[type[EventData], ...] = (
    TrialRequested,
    TrialExtended,
    TrialPaused,
    TrialStopped,
    AllocationGranted,
    AllocationReleased,
    ExperimentPauseRequested,
    ExperimentResumeRequested,
)
TOLD_MAX = 500
"""Most waits that one decision tells of; the next decision follows a moment later."""


class Wait(NamedTuple):
    webhook: str
    experiment_id: int
    trial_id: str
    since_us: int
    limit_seconds: float


def demanding(watched: WatchedExperiment, data: EventData, time_us: int) -> WatchedExperiment:
    """The experiment after one of OF_DEMANDS."""
    if isinstance(data, ExperimentPauseRequested):
        return replace(watched, paused=True)
    if isinstance(data, ExperimentResumeRequested):
        anew = {trial: demand._replace(since_us=time_us) for trial, demand in watched.demands.items()}
        return replace(watched, paused=False, demands=watched.demands.update(anew))
    trial_id = getattr(data, "trial_id", "")
    if isinstance(data, TrialRequested):
        return replace(watched, demands=watched.demands.set(trial_id, SlotDemand(time_us)))
    demand = watched.demands.get(trial_id)
    if demand is None:
        return watched
    if isinstance(data, TrialStopped):
        return replace(watched, demands=watched.demands.delete(trial_id))
    if isinstance(data, AllocationGranted):
        changed = demand._replace(running=True)
    elif isinstance(data, AllocationReleased):
        changed = demand._replace(running=False, since_us=time_us)
    elif isinstance(data, TrialPaused):
        changed = demand._replace(idle=True)
    else:
        changed = demand._replace(idle=False, since_us=time_us if demand.idle else demand.since_us)
    return watched if changed == demand else replace(watched, demands=watched.demands.set(trial_id, changed))


def marked_over(webhook: Webhook, trial_id: str) -> Webhook:
    """The webhook after a trial got its slots."""
    marks = webhook.marks
    for index, trigger in enumerate(webhook.triggers):
        mark = marks.get(mark_key(index, trial_id)) if isinstance(trigger, WaitTrigger) else None
        if mark is not None:
            marks = marks.set(mark_key(index, trial_id), mark._replace(beyond=False, was_beyond=mark.beyond))
    return webhook if marks is webhook.marks else replace(webhook, marks=marks)


def marked_told(webhook: Webhook, trial_id: str, limit_seconds: float) -> Webhook:
    """The webhook after it told of a wait: shorter limits count as told, too."""
    marks = webhook.marks
    for index, trigger in enumerate(webhook.triggers):
        if isinstance(trigger, WaitTrigger) and trigger.seconds <= limit_seconds:
            marks = marks.set(mark_key(index, trial_id), TriggerStatus(beyond=True))
    return replace(webhook, marks=marks)


def waits(notices: Notices, now_us: int, hidden_of: HiddenOf | None = None) -> Iterator[Wait]:
    """Waits to tell of now: for each webhook and trial the longest limit that is reached."""
    for name in sorted(notices.webhooks):
        webhook = notices.webhooks[name]
        limits = [(index, item.seconds) for index, item in enumerate(webhook.triggers) if isinstance(item, WaitTrigger)]
        if not limits or webhook.paused:
            continue
        for experiment_id in sorted(notices.experiments):
            watched = notices.experiments[experiment_id]
            if not watched.demands or watched.paused or not passes(webhook.filters, experiment_id, watched):
                continue
            if is_hidden(watched, experiment_id, webhook.owner, hidden_of):
                continue
            for trial_id in sorted(watched.demands):
                limit = _reached(webhook, trial_id, watched.demands[trial_id], limits, now_us)
                if limit:
                    yield Wait(name, experiment_id, trial_id, watched.demands[trial_id].since_us, limit)


def _reached(webhook: Webhook, trial_id: str, demand: SlotDemand, limits: list[tuple[int, float]], now_us: int) -> float:
    """Longest limit, in seconds, that is reached and not yet told; 0 if there is none."""
    if not demand.waits:
        return 0.0
    found = 0.0
    for index, seconds in limits:
        mark = webhook.marks.get(mark_key(index, trial_id))
        told = len(webhook.marks) >= MARKS_MAX if mark is None else mark.beyond
        if not told and now_us - demand.since_us >= seconds * 1e6:
            found = max(found, seconds)
    return found
