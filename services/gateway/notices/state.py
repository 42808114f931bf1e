"""What the gateway remembers of webhooks: what triggers a notice, which notices wait for their target, and which are given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.webhooks import Filters, Severity, TargetKind, Trigger
from tenuto.services.gateway.rights.state import PeopleState

WEBHOOKS_MAX = 1_000
"""Of a cluster: each has a task and a connection of its own."""
WEBHOOKS_PER_USER_MAX = 20
WAITING_MAX = 10_000
"""Notices that wait for one target, in memory: hours of a busy cluster. Further ones are given up, and recorded as such."""
PARKED_MAX = 1_000
"""Notices of one webhook that were given up and can be sent again; of more, the oldest are forgotten here (the log has them)."""
REFERENCES_MAX = 1_000
"""Experiments whose message a webhook can still update."""
TROUBLES_MAX = 1_000
MARKS_MAX = 10_000
"""Trials that a webhook's metric triggers look at; beyond it the first of them are looked at anew."""


class Demand(NamedTuple):
    """What a trial asks of the scheduler."""

    since_us: int
    """When it began to wait; without meaning where it does not."""
    idle: bool = False
    """The search wants nothing of it now."""
    running: bool = False
    """It has slots."""

    @property
    def waits(self) -> bool:
        return not self.idle and not self.running


class Trouble(NamedTuple):
    """What is not well."""

    number: int
    """Of the first notice about it."""
    passing: bool
    """It is over when no metric is beyond its limit and no trial waits any more. False: when the experiment is over."""


@dataclass(frozen=True)
class Watched:
    """What filters and triggers ask about an experiment, and which of its trials wait for slots."""

    user: str
    workspace: str
    labels: tuple[str, ...]
    metric: str
    smaller_is_better: bool
    paused: bool = False
    demands: Map[str, Demand] = field(default_factory=Map)
    """By trial, of those that the search has not stopped."""


class Mark(NamedTuple):
    """Where a trial's metric, or its wait, stands by one trigger."""

    best: float | None = None
    since: int = 0
    """Validations in a row that were not better."""
    beyond: bool = False
    """The limit of a metric, the validations of a stall, or the seconds of a wait that was told."""
    was_beyond: bool = False
    """Before the last event that this mark is about."""


HiddenOf = Callable[[str], frozenset[str]]
"""User -> workspaces that the user does not see: webhooks of that user do not tell of what is in them."""


def is_hidden(watched: Watched | None, experiment_id: int | None, user: str, hidden_of: HiddenOf | None) -> bool:
    """Of an experiment that ended long ago the workspace is not known here: it might be any."""
    if hidden_of is None or experiment_id is None:
        return False
    hidden = hidden_of(user)
    return bool(hidden) and (watched is None or watched.workspace in hidden)


@dataclass(frozen=True)
class Notice:
    number: int
    id: str
    """The same for ever, and no other notice's: what a receiver may know it by."""
    time_us: int
    queued_us: int
    """When it was triggered, or sent again by hand: it is tried for a day from then on."""
    group: int
    group_until_us: int
    event_type: str
    severity: Severity
    recovered: bool
    reason: str
    """As recorded, in JSON."""
    experiment_id: int | None = None
    trial_id: str | None = None
    agent_id: str | None = None

    @property
    def subject(self) -> str:
        """What it is about: the notices of one subject belong together."""
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
    """Of its addresses and secrets."""
    paused: bool = False
    number: int = 0
    """Of the last notice."""
    group: int = 0
    group_until_us: int = 0
    """Of the last group: what is triggered before then belongs to it."""
    resume_us: int = 0
    """Its target is not tried before then."""
    waiting: Map[int, Notice] = field(default_factory=Map)
    parked: Map[int, Notice] = field(default_factory=Map)
    marks: Map[str, Mark] = field(default_factory=Map)
    """By `<trigger>/<trial>`, of trials whose experiment has not ended."""
    troubles: Map[str, Trouble] = field(default_factory=Map)
    """By the subject of notices."""
    references: Map[int, str] = field(default_factory=Map)
    """Experiment -> what the target calls the message about it."""


@dataclass(frozen=True)
class Notices:
    webhooks: Map[str, Webhook] = field(default_factory=Map)
    experiments: Map[int, Watched] = field(default_factory=Map)
    """Those that the search has not ended."""
    ended: tuple[int, Watched] | None = None
    """The one that ended last: its end is folded before it is decided on."""

    def watched(self, experiment_id: int | None) -> Watched | None:
        if experiment_id is None:
            return None
        if self.ended is not None and self.ended[0] == experiment_id:
            return self.ended[1]
        return self.experiments.get(experiment_id)


@dataclass(frozen=True)
class NoticesState(PeopleState):
    """What the gateway remembers for notices: of whom they are, and what they are about."""

    notices: Notices = field(default_factory=Notices)
    """Webhooks, and what is to be sent to them."""
