"""Reasons why a notice is sent, and why one is given up: the numbers of the gateway's rules, with their sentences."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.notice import WebhookFailed, WebhookTriggered
from tenuto.schemas.metrics import usable
from tenuto.schemas.sentences.amounts import amount, duration, times
from tenuto.schemas.sentences.rules import Data, Numbers, rule

HAS = {"completed": "has completed", "failed": "has failed", "canceled": "was canceled", "early_stopped": "was stopped early"}


def _trial(about: Data) -> str:
    return f"Trial {about.get('trial_id')}"


@rule(WebhookTriggered.TYPE, "test")
@dataclass(frozen=True, kw_only=True)
class Tested(Numbers):
    """A user tests the webhook."""

    user: str

    def sentence(self, about: Data) -> str:
        return f"{self.user} tries whether this webhook works."


@rule(WebhookTriggered.TYPE, "event")
@dataclass(frozen=True, kw_only=True)
class EventRecorded(Numbers):
    """An event of a type that was asked for."""

    def sentence(self, about: Data) -> str:
        return f"{about.get('event_type')} was recorded."


@rule(WebhookTriggered.TYPE, "experiment_ended")
@dataclass(frozen=True, kw_only=True)
class ExperimentEnded(Numbers):
    state: str
    trials: int
    best_trial: str | None = None
    best_metric: float | str | None = None

    def sentence(self, about: Data) -> str:
        best = f"; the best is trial {self.best_trial} with {self.best_metric}" if self.best_trial is not None else ""
        ended = HAS.get(self.state, self.state)
        return f"Experiment {about.get('experiment_id')} {ended} after {times(self.trials, 'trial')}{best}."


@rule(WebhookTriggered.TYPE, "trial_ended")
@dataclass(frozen=True, kw_only=True)
class TrialEnded(Numbers):
    state: str

    def sentence(self, about: Data) -> str:
        return f"{_trial(about)} {HAS.get(self.state, self.state)}."


@rule(WebhookTriggered.TYPE, "metric_beyond")
@dataclass(frozen=True, kw_only=True)
class MetricBeyond(Numbers):
    metric: str
    value: float | str
    limit: float
    above: bool
    batches: int
    """Batches trained when it was measured."""

    def sentence(self, about: Data) -> str:
        side = "above" if self.above else "below"
        where = f"after {amount(self.batches, 'batches')}"
        if isinstance(self.value, str) or not usable(self.value):
            shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(f"{self.value}", self.value)
            return f"{self.metric} of {_trial(about).lower()} is {shown} {where}, which counts as {side} {self.limit:g}."
        return f"{self.metric} of {_trial(about).lower()} is {self.value:g} {where}, {side} {self.limit:g}."


@rule(WebhookTriggered.TYPE, "metric_stalled")
@dataclass(frozen=True, kw_only=True)
class MetricStalled(Numbers):
    metric: str
    best: float | str | None
    validations: int
    """Validations in a row that were not better."""

    def sentence(self, about: Data) -> str:
        best = f"its best is {self.best}" if self.best is not None else "it never was a number"
        row = times(self.validations, "validation")
        return f"{self.metric} of {_trial(about).lower()} has not become better for {row}: {best}."


@rule(WebhookTriggered.TYPE, "log_matched")
@dataclass(frozen=True, kw_only=True)
class LineMatched(Numbers):
    pattern: str
    line: str
    """Its beginning."""

    def sentence(self, about: Data) -> str:
        return f'{_trial(about)} printed a line that matches {self.pattern}: "{self.line}".'


@rule(WebhookTriggered.TYPE, "agent_lost")
@dataclass(frozen=True, kw_only=True)
class LostAgent(Numbers):
    why: str

    def sentence(self, about: Data) -> str:
        return f"Agent {about.get('agent_id')} is lost: {self.why.rstrip('.')}."


@rule(WebhookTriggered.TYPE, "checkpoint_damaged")
@dataclass(frozen=True, kw_only=True)
class DamagedCheckpoint(Numbers):
    checkpoint: str
    damage: str
    resumed_from: str | None

    def sentence(self, about: Data) -> str:
        then = f"it goes on from {self.resumed_from}" if self.resumed_from else "there is no earlier one to go on from"
        return f"Checkpoint {self.checkpoint} of {_trial(about).lower()} is damaged ({self.damage}); {then}."


@rule(WebhookTriggered.TYPE, "straggler")
@dataclass(frozen=True, kw_only=True)
class SlowRank(Numbers):
    rank: int
    own_seconds: float
    """Seconds that a step takes this rank."""
    usual_seconds: float
    """Seconds that a step takes the other ranks: their median."""

    def sentence(self, about: Data) -> str:
        return (
            f"Rank {self.rank} of {_trial(about).lower()}, on agent {about.get('agent_id')}, holds up the others: a step takes "
            f"it {self.own_seconds:.3g} s, and the others {self.usual_seconds:.3g} s."
        )


@rule(WebhookTriggered.TYPE, "said_by_model")
@dataclass(frozen=True, kw_only=True)
class SaidByModel(Numbers):
    """Model code sent a notice."""

    text: str

    def sentence(self, about: Data) -> str:
        return f'{_trial(about)} says: "{self.text}".'


@rule(WebhookTriggered.TYPE, "trial_waits")
@dataclass(frozen=True, kw_only=True)
class TrialWaits(Numbers):
    waited_seconds: float
    """Time since the trial was requested, lost its slots or was resumed."""
    limit_seconds: float
    """Limit of the trigger."""

    def sentence(self, about: Data) -> str:
        return f"{_trial(about)} has waited for slots for {duration(self.waited_seconds)}; `tenuto job ls` shows the queue."


@rule(WebhookTriggered.TYPE, "metric_back")
@dataclass(frozen=True, kw_only=True)
class MetricBack(Numbers):
    metric: str
    value: float | str
    batches: int

    def sentence(self, about: Data) -> str:
        return f"{self.metric} of {_trial(about).lower()} is well again: {self.value} after {amount(self.batches, 'batches')}."


@rule(WebhookTriggered.TYPE, "trial_started")
@dataclass(frozen=True, kw_only=True)
class WaitOver(Numbers):
    """A trial whose wait was told has its slots."""

    def sentence(self, about: Data) -> str:
        return f"{_trial(about)} has its slots, and waits no longer."


@rule(WebhookTriggered.TYPE, "recovered")
@dataclass(frozen=True, kw_only=True)
class Recovered(Numbers):
    """The state that the webhook had a notice about is well again, or over."""

    def sentence(self, about: Data) -> str:
        agent = about.get("agent_id")
        if agent is not None:
            return f"Agent {agent} is back."
        ended = HAS["canceled"] if about.get("event_type") == "ExperimentCanceled" else HAS["completed"]
        return f"Experiment {about.get('experiment_id')} {ended}."


# Notices that are given up.


@rule(WebhookFailed.TYPE, "refused")
@dataclass(frozen=True, kw_only=True)
class TargetRefused(Numbers):
    """The target will not take it, however often it is sent."""

    answer: str

    def sentence(self, about: Data) -> str:
        return f"the target refuses it: {self.answer}."


@rule(WebhookFailed.TYPE, "too_late")
@dataclass(frozen=True, kw_only=True)
class TriedTooLong(Numbers):
    hours: float
    """Time since the notice was triggered, or sent again by hand."""
    answer: str

    def sentence(self, about: Data) -> str:
        return f"the target has not taken it in {self.hours:g} hours; its last answer: {self.answer}."


@rule(WebhookFailed.TYPE, "too_many")
@dataclass(frozen=True, kw_only=True)
class TooManyWait(Numbers):
    waiting: int

    def sentence(self, about: Data) -> str:
        return f"{self.waiting} notices wait for this target already, and no more are kept."
