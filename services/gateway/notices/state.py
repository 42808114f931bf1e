"""State of webhooks: their triggers, the notices that wait for their target, and those that were given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.webhooks import Filters, Severity, TargetKind, Trigger
from tenuto.services.gateway.rights.state import PeopleState

WEBHOOKS_MAX = 1_000
"""Most webhooks of a cluster: each has a task and a connection of its own."""
WEBHOOKS_PER_USER_MAX = 20
WAITING_MAX = 10_000
"""Most notices that wait for one target, in memory: hours of a busy cluster. Further ones are given up, and recorded so."""
PARKED_MAX = 1_000
"""Most parked notices of one webhook, which can be sent again; beyond it the oldest are forgotten here (the log has them)."""
REFERENCES_MAX = 1_000
"""Most experiments whose message a webhook can still update."""
TROUBLES_MAX = 1_000
MARKS_MAX = 10_000
"""Most marks of a webhook, one for each trigger and trial. At the limit, the first validation of another trial clears them
all, and a new wait is not told."""


class SlotDemand(NamedTuple):
    """Demand of a trial for slots."""

    since_us: int
    """Time at which the trial began to wait; meaningless if it does not wait."""
    idle: bool = False
    """True if the search has no work for the trial now."""
    running: bool = False
    """True if the trial has slots."""

    @property
    def waits(self) -> bool:
        return not self.idle and not self.running


class Trouble(NamedTuple):
    """Problem that a notice reported and that is not over."""

    number: int
    """Number of the first notice about it."""
    passing: bool
    """True: it ends when no metric is beyond its limit and no trial waits any more. False: it ends with the experiment."""


@dataclass(frozen=True)
class WatchedExperiment:
    """Facts about an experiment that filters and triggers compare, and the demands of its trials for slots."""

    user: str
    workspace: str
    labels: tuple[str, ...]
    metric: str
    smaller_is_better: bool
    paused: bool = False
    demands: Map[str, SlotDemand] = field(default_factory=Map)
    """Demands by trial, of those that the search has not stopped."""


class TriggerStatus(NamedTuple):
    """Status of a trial's metric, or of its wait, by one trigger."""

    best: float | None = None
    since: int = 0
    """Validations in a row without a better value."""
    beyond: bool = False
    """True if the metric is beyond its limit, the validations of a stall are reached, or the wait was told."""
    was_beyond: bool = False
    """Value of `beyond` before the last event that this mark is about."""


HiddenOf = Callable[[str], frozenset[str]]
"""User -> workspaces that the user does not see: webhooks of that user send nothing about them."""


def is_hidden(watched: WatchedExperiment | None, experiment_id: int | None, user: str, hidden_of: HiddenOf | None) -> bool:
    """True if the experiment's workspace is hidden from the user. One that ended long ago is hidden if any workspace is, as its
    own is no longer known here."""
    if hidden_of is None or experiment_id is None:
        return False
    hidden = hidden_of(user)
    return bool(hidden) and (watched is None or watched.workspace in hidden)


@dataclass(frozen=True)
class Notice:
    number: int
    id: str
    """Id that never changes and is unique, so that a receiver can recognize the notice."""
    time_us: int
    queued_us: int
    """Time at which it was triggered, sent again by hand, or resumed with its webhook: it is tried for a day from then on."""
    group: int
    group_until_us: int
    event_type: str
    severity: Severity
    recovered: bool
    reason: str
    """Reason as recorded, in JSON."""
    experiment_id: int | None = None
    trial_id: str | None = None
    agent_id: str | None = None

    @property
    def subject(self) -> str:
        """Experiment or agent that it is about, else the cluster; notices of one subject belong together."""
        if self.experiment_id is not None:
            return f"experiment/{self.experiment_id}"
        return f"agent/{self.agent_id}" if self.agent_id is not None else "cluster"


@dataclass(frozen=True)
class Webhook:
    name: str
    owner: str
    kind: TargetKind
    place: str
    triggers: tuple[Trigger, ...]
    filters: Filters
    group_seconds: float
    recoveries: bool
    created_us: int
    sealed_id: str
    """Id under which its addresses and secrets are kept."""
    paused: bool = False
    number: int = 0
    """Number of the last notice; 0 if there is none."""
    group: int = 0
    group_until_us: int = 0
    """End of the last group: a notice triggered before then belongs to it."""
    resume_us: int = 0
    """Time before which its target is not tried."""
    waiting: Map[int, Notice] = field(default_factory=Map)
    parked: Map[int, Notice] = field(default_factory=Map)
    marks: Map[str, TriggerStatus] = field(default_factory=Map)
    """Marks by `<trigger>/<trial>`, of trials whose experiment has not ended."""
    troubles: Map[str, Trouble] = field(default_factory=Map)
    """Troubles by the subject of notices."""
    references: Map[int, str] = field(default_factory=Map)
    """Experiment -> the target's reference to the message about it."""


@dataclass(frozen=True)
class Notices:
    webhooks: Map[str, Webhook] = field(default_factory=Map)
    experiments: Map[int, WatchedExperiment] = field(default_factory=Map)
    """Experiments that the search has not ended."""
    ended: tuple[int, WatchedExperiment] | None = None
    """Id and facts of the experiment that ended last, as its end is folded before notices about it are decided. None: none."""

    def watched(self, experiment_id: int | None) -> WatchedExperiment | None:
        if experiment_id is None:
            return None
        if self.ended is not None and self.ended[0] == experiment_id:
            return self.ended[1]
        return self.experiments.get(experiment_id)


@dataclass(frozen=True)
class NoticesState(PeopleState):
    """State that notices need: users with their rights, webhooks, and the experiments that notices are about."""

    notices: Notices = field(default_factory=Notices)
    """Webhooks with their notices, and experiments."""
