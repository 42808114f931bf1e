"""Decides whether an event is worth a notice, by the triggers and filters of a webhook. The compared numbers are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from immutables import Map

from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialStopped
from tenuto.schemas.events.trial import CheckpointDamaged, LogMatched, NoticeReported, StragglerNoticed, ValidationReported
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.metrics import usable
from tenuto.schemas.sentences.notices import (
    DamagedCheckpoint,
    EventRecorded,
    ExperimentEnded,
    LineMatched,
    LostAgent,
    MetricBeyond,
    MetricStalled,
    SaidByModel,
    SlowRank,
    TrialEnded,
)
from tenuto.schemas.webhooks import (
    AgentLostTrigger,
    CheckpointDamagedTrigger,
    EventTrigger,
    ExperimentTrigger,
    Filters,
    LogTrigger,
    MetricTrigger,
    NoticeTrigger,
    Severity,
    StallTrigger,
    StragglerTrigger,
    TrialTrigger,
    Trigger,
)
from tenuto.services.gateway.notices.state import MARKS_MAX, TriggerStatus, WatchedExperiment, Webhook

NOT_CAUSES = frozenset({"TrialProgressed", "ReportRefused"})
"""Types of events that a trial has every few seconds, and that no user waits for."""
CAUSES_ELSEWHERE = frozenset(name for name, kind in EVENT_MODELS.items() if kind.OWNER != "gateway") - NOT_CAUSES
"""Types of events of other services that a notice can be about."""
OWN_CAUSES = frozenset(name for name, kind in EVENT_MODELS.items() if kind.OWNER == "gateway" and kind.STREAM == "request") - {
    "WebhookCreated",
    "WebhookChanged",
    "WebhookSecretChanged",
    "WebhookRemoved",
}
"""Types of the gateway's own events that a notice can be about: requests of users. Those about webhooks are excluded, as a
notice about a notice would never end."""
CAUSES = CAUSES_ELSEWHERE | OWN_CAUSES
ENDS: tuple[tuple[type[EventData], str], ...] = (
    (ExperimentCompleted, "completed"),
    (ExperimentFailed, "failed"),
    (ExperimentCanceled, "canceled"),
)
TEXT_MAX = 500
"""Characters of a log line or an error in a notice."""


class Fired(NamedTuple):
    severity: Severity
    reason: Reason


def experiment_id_of(data: EventData) -> int | None:
    """Id of the experiment that an event is about; None if it is about none."""
    found = getattr(data, "experiment_id", None)
    if found is not None:
        return int(found)
    trial = getattr(data, "trial_id", None)
    return None if trial is None else experiment_of(trial)


def passes(filters: Filters, experiment_id: int | None, watched: WatchedExperiment | None) -> bool:
    """True if the filters let through an event about that experiment, or about none."""
    if experiment_id is None or filters == Filters():
        return True
    if filters.experiments and experiment_id not in filters.experiments:
        return False
    if not (filters.users or filters.workspaces or filters.labels):
        return True
    if watched is None:  # it ended long ago
        return False
    return (
        (not filters.users or watched.user in filters.users)
        and (not filters.workspaces or watched.workspace in filters.workspaces)
        and all(label in watched.labels for label in filters.labels)
    )


class Judged(Protocol):
    """Holder of triggers: a webhook, or an experiment with rules."""

    @property
    def triggers(self) -> Sequence[Trigger]: ...
    @property
    def marks(self) -> Map[str, TriggerStatus]: ...


def first_fired(webhook: Webhook, watched: WatchedExperiment | None, data: EventData) -> Fired | None:
    """Severity and reason by the first trigger that the event sets off; None if it sets off none. A validation is already in
    the marks."""
    found = (fired_by(webhook, index, watched, data) for index in range(len(webhook.triggers)))
    return next((item for item in found if item is not None), None)


def fired_by(judged: Judged, index: int, watched: WatchedExperiment | None, data: EventData) -> Fired | None:
    """Severity and reason by one of the triggers; None if the event does not set it off."""
    trigger = judged.triggers[index]
    return _measured(judged, index, trigger, data, watched) or _fired(trigger, data)


def _fired(trigger: Trigger, data: EventData) -> Fired | None:
    if isinstance(trigger, EventTrigger) and data.TYPE in trigger.types:
        return Fired("info", EventRecorded().reason())
    if isinstance(trigger, ExperimentTrigger):
        return _ended(trigger, data)
    if isinstance(trigger, TrialTrigger) and isinstance(data, TrialStopped) and data.outcome in trigger.states:
        severity: Severity = "error" if data.outcome == "failed" else "info"
        return Fired(severity, TrialEnded(state=data.outcome).reason())
    if isinstance(trigger, NoticeTrigger) and isinstance(data, NoticeReported) and data.level in trigger.levels:
        return Fired(data.level, SaidByModel(text=data.text).reason())
    if isinstance(trigger, LogTrigger) and isinstance(data, LogMatched) and trigger.contains in data.line:
        return Fired("warning", LineMatched(pattern=data.pattern, line=data.line[:TEXT_MAX]).reason())
    if isinstance(trigger, AgentLostTrigger) and isinstance(data, AgentLost) and not data.announced:
        return Fired("error", LostAgent(why=data.reason[:TEXT_MAX]).reason())
    if isinstance(trigger, CheckpointDamagedTrigger) and isinstance(data, CheckpointDamaged):
        damage = DamagedCheckpoint(checkpoint=data.checkpoint_id, damage=data.reason[:TEXT_MAX], resumed_from=data.resumed_from)
        return Fired("error", damage.reason())
    if isinstance(trigger, StragglerTrigger) and isinstance(data, StragglerNoticed):
        slow = SlowRank(rank=data.rank, own_seconds=data.own_seconds, usual_seconds=data.usual_seconds)
        return Fired("warning", slow.reason())
    return None


def _ended(trigger: ExperimentTrigger, data: EventData) -> Fired | None:
    state = next((state for kind, state in ENDS if isinstance(data, kind)), "")
    if state not in trigger.states:
        return None
    trials = int(getattr(data, "trials", 0))
    if isinstance(data, ExperimentCompleted):
        ended = ExperimentEnded(state=state, trials=trials, best_trial=data.best_trial_id, best_metric=data.best_metric)
    else:
        ended = ExperimentEnded(state=state, trials=trials)
    return Fired("error" if state == "failed" else "info", ended.reason())


# Triggers that compare a validation with earlier ones keep a mark for each trial.


def mark_key(index: int, trial_id: str) -> str:
    return f"{index}/{trial_id}"


def marked(judged: Judged, watched: WatchedExperiment | None, data: ValidationReported) -> Map[str, TriggerStatus]:
    """Marks of the triggers after this validation."""
    marks = judged.marks
    for index, trigger in enumerate(judged.triggers):
        if not isinstance(trigger, (MetricTrigger, StallTrigger)):
            continue
        value = data.metrics.get(metric_of(trigger, watched))
        if value is None:
            continue
        key = mark_key(index, data.trial_id)
        if key not in marks and len(marks) >= MARKS_MAX:
            marks = Map()
        before = marks.get(key, TriggerStatus())
        marks = marks.set(key, _moved(trigger, before, value, watched))
    return marks


def without_experiment(marks: Map[str, TriggerStatus], experiment_id: int) -> Map[str, TriggerStatus]:
    for key in sorted(marks):
        if experiment_of(key.partition("/")[2]) == experiment_id:
            marks = marks.delete(key)
    return marks


def without_trial(webhook: Webhook, trial_id: str) -> Webhook:
    marks = webhook.marks
    for index in range(len(webhook.triggers)):
        key = mark_key(index, trial_id)
        marks = marks.delete(key) if key in marks else marks
    return webhook if marks is webhook.marks else replace(webhook, marks=marks)


def metric_of(trigger: MetricTrigger | StallTrigger, watched: WatchedExperiment | None) -> str:
    return trigger.metric or (watched.metric if watched is not None else "")


def _moved(
    trigger: MetricTrigger | StallTrigger, mark: TriggerStatus, value: float, watched: WatchedExperiment | None
) -> TriggerStatus:
    if isinstance(trigger, MetricTrigger):
        return mark._replace(was_beyond=mark.beyond, beyond=beyond(trigger, value))
    smaller = trigger.smaller_is_better
    if smaller is None:
        smaller = watched is None or watched.smaller_is_better
    better = usable(value) and (mark.best is None or (value < mark.best if smaller else value > mark.best))
    since = 0 if better else mark.since + 1
    return TriggerStatus(value if better else mark.best, since, beyond=since >= trigger.validations, was_beyond=mark.beyond)


def beyond(trigger: MetricTrigger, value: float) -> bool:
    if not usable(value):
        return True
    return value > trigger.above if trigger.above is not None else trigger.below is not None and value < trigger.below


def _measured(judged: Judged, index: int, trigger: Trigger, data: EventData, watched: WatchedExperiment | None) -> Fired | None:
    if not isinstance(data, ValidationReported) or not isinstance(trigger, (MetricTrigger, StallTrigger)):
        return None
    name = metric_of(trigger, watched)
    mark = judged.marks.get(mark_key(index, data.trial_id))
    if mark is None or name not in data.metrics:
        return None
    if isinstance(trigger, StallTrigger):
        if mark.since != trigger.validations:
            return None
        return Fired("warning", MetricStalled(metric=name, best=mark.best, validations=mark.since).reason())
    if not mark.beyond or mark.was_beyond:
        return None
    limit = trigger.above if trigger.above is not None else trigger.below
    assert limit is not None
    numbers = MetricBeyond(
        metric=name, value=data.metrics[name], limit=limit, above=trigger.above is not None, batches=data.batches
    )
    return Fired("warning", numbers.reason())
