"""Explains why a webhook has no notice about an event, by the same rules as the decisions, one by one."""

from __future__ import annotations

from tenuto.schemas.events import EventData
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.sentences.amounts import times
from tenuto.schemas.webhooks import (
    EventTrigger,
    ExperimentTrigger,
    LogTrigger,
    MetricTrigger,
    NoticeTrigger,
    StallTrigger,
    TrialTrigger,
    Trigger,
    WaitTrigger,
)
from tenuto.services.gateway.notices.policies.triggers import CAUSES, experiment_id_of, fired_by, mark_key, metric_of, passes
from tenuto.services.gateway.notices.state import Notices, TriggerStatus, WatchedExperiment, Webhook

ASKED: tuple[tuple[type[Trigger], str], ...] = (
    (ExperimentTrigger, "experiments that ended in one of these states"),
    (TrialTrigger, "trials that ended in one of these states"),
    (LogTrigger, "lines that match a log policy and contain this"),
    (NoticeTrigger, "notices of model code with one of these levels"),
)


def why_not(notices: Notices, name: str, data: EventData) -> tuple[str, ...]:
    """Sentences about each filter that did not match, else about each trigger. The event is folded already."""
    webhook = notices.webhooks.get(name)
    if webhook is None:
        return (f"Webhook {name} did not exist when this event was recorded.",)
    if webhook.paused:
        return (f"Webhook {name} was paused when this event was recorded.",)
    if data.TYPE not in CAUSES:
        return (f"No notice is about events of type {data.TYPE}; docs/webhooks.md says which there are.",)
    experiment_id = experiment_id_of(data)
    watched = notices.watched(experiment_id)
    if not passes(webhook.filters, experiment_id, watched):
        return tuple(_filtered(webhook, experiment_id or 0, watched))
    return tuple(
        f"Trigger {index + 1} ({shown(trigger)}): {_unfit(webhook, index, trigger, data, watched)}."
        for index, trigger in enumerate(webhook.triggers)
    )


def shown(trigger: Trigger) -> str:
    """The trigger as `--on` has it."""
    if isinstance(trigger, EventTrigger):
        return f"event:{','.join(trigger.types)}"
    if isinstance(trigger, (ExperimentTrigger, TrialTrigger)):
        return f"{trigger.on}:{','.join(trigger.states)}"
    if isinstance(trigger, MetricTrigger):
        return f"metric:{trigger.metric}{'<' if trigger.above is None else '>'}{_limit(trigger):g}"
    if isinstance(trigger, StallTrigger):
        return f"stall:{trigger.metric + ':' if trigger.metric else ''}{trigger.validations}"
    if isinstance(trigger, LogTrigger):
        return f"log:{trigger.contains}" if trigger.contains else "log"
    if isinstance(trigger, NoticeTrigger):
        return f"notice:{','.join(trigger.levels)}"
    return f"wait:{trigger.seconds:g}" if isinstance(trigger, WaitTrigger) else trigger.on


def _limit(trigger: MetricTrigger) -> float:
    limit = trigger.above if trigger.above is not None else trigger.below
    assert limit is not None
    return limit


def _filtered(webhook: Webhook, experiment_id: int, watched: WatchedExperiment | None) -> list[str]:
    filters, found = webhook.filters, []
    if filters.experiments and experiment_id not in filters.experiments:
        found.append(f"Experiment {experiment_id} is none of those of the filter ({_words(filters.experiments)}).")
    if watched is None:
        return found or [f"Experiment {experiment_id} had ended, and its user, workspace and labels were not known any more."]
    for what, value, allowed in (("user", watched.user, filters.users), ("workspace", watched.workspace, filters.workspaces)):
        if allowed and value not in allowed:
            found.append(f"The {what} of experiment {experiment_id} is {value}, and the filter lets through {_words(allowed)}.")
    missing = [label for label in filters.labels if label not in watched.labels]
    if missing:
        has = _words(watched.labels) or "no labels"
        found.append(f"Experiment {experiment_id} lacks {_words(missing)} of the filter's labels (it has {has}).")
    return found


def _words(values: object) -> str:
    assert isinstance(values, (tuple, list))
    return ", ".join(map(str, values))


def _unfit(webhook: Webhook, index: int, trigger: Trigger, data: EventData, watched: WatchedExperiment | None) -> str:
    if fired_by(webhook, index, watched, data) is not None:
        return "fits, and its notice is about to be decided"
    if isinstance(trigger, WaitTrigger):
        return "is told while a trial waits, and not about an event"
    if isinstance(data, ValidationReported) and isinstance(trigger, (MetricTrigger, StallTrigger)):
        return _not_measured(webhook, index, trigger, data, watched)
    asked = next((words for kind, words in ASKED if isinstance(trigger, kind)), "")
    return f"asks for {asked}, and this {data.TYPE} is none" if asked else f"does not ask for events of type {data.TYPE}"


def _not_measured(
    webhook: Webhook,
    index: int,
    trigger: MetricTrigger | StallTrigger,
    data: ValidationReported,
    watched: WatchedExperiment | None,
) -> str:
    """Reason why this validation sent no notice for a trigger on a metric, as a clause for people."""
    name = metric_of(trigger, watched)
    if name not in data.metrics:
        return f"the validation has no metric {name!r}" if name else "the experiment's metric is not known any more"
    value, mark = data.metrics[name], webhook.marks.get(mark_key(index, data.trial_id), TriggerStatus())
    if isinstance(trigger, StallTrigger):
        if mark.beyond:
            row = times(mark.since, "validation")
            return f"{name} has not become better for {row}, and {trigger.validations} were told"
        return f"{name} became better {times(mark.since, 'validation')} ago, and {trigger.validations} are asked for"
    side = "below" if trigger.above is None else "above"
    if mark.beyond:
        return f"{name} was {value:g}, {side} the limit, as at the validation before, and that was told then"
    return f"{name} was {value:g}, which is not {side} {_limit(trigger):g}"
