"""Bodies of responses in the REST interface. Times end in `_us`: microseconds since 1970-01-01 UTC. NaN and infinities are the
strings "NaN", "Infinity" and "-Infinity", as everywhere in Tenuto's JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.anchors import Anchor
from tenuto.schemas.base import Model
from tenuto.schemas.bus import BusState, LaneBacklog
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.trial import CheckpointFile
from tenuto.schemas.record import ConfigLayer
from tenuto.services.gateway.projections.worker_views import DoorView, SilentTrialView, StragglerView

ExperimentState = Literal["active", "paused", "canceling", "completed", "failed", "canceled", "unmanaged"]
"""`unmanaged`: its trials are runs of programs that Tenuto did not start; it has no search, no configuration and no end."""
TrialState = Literal["queued", "starting", "running", "paused", "stopping", "completed", "early_stopped", "failed", "canceled"]
AgentState = Literal["joined", "leaving", "lost"]


class ExperimentView(Model):
    id: int
    name: str
    description: str
    labels: tuple[str, ...]
    archived: bool = False
    """True: lists leave it out, unless they ask for archived ones."""
    deletion_due_us: int | None = None
    """When it is deleted, unless that is taken back before. Null: it is not to be deleted, or is deleted."""
    deleted_us: int | None = None
    """When its files, metrics and log lines were deleted."""
    user: str
    workspace: str
    project: str = ""
    """Empty: none."""
    state: ExperimentState
    method: str
    metric: str
    smaller_is_better: bool
    pool: str
    slots_per_trial: int
    priority: int
    weight: float
    max_slots: int | None
    max_trials: int | None = None
    """Trials of the search in all, as it is now. None: the method plans them itself."""
    max_concurrent_trials: int | None = None
    """Trials at once, as it is now. None: there is only one."""
    seed: int
    context_hash: str
    context_size_bytes: int
    submitted_us: int
    ended_us: int | None
    error: str | None
    """Why it failed."""
    best_trial_id: str | None
    best_metric: float | None
    trials: dict[TrialState, int]
    """Trials by state; states without trials are left out."""


class ExperimentDetail(ExperimentView):
    note: str = ""
    """What people wrote about it after its submission."""
    config: dict[str, Any]
    best_checkpoint_id: str | None
    """The kept checkpoint with the best searcher metric."""
    relation: Literal["reproduction", "fork", "continuation"] | None = None
    """Relation to the parent experiment; null if it has none."""
    parent_id: str | None = None
    """Id of the parent experiment, or of its trial that is reproduced."""
    layers: tuple[ConfigLayer, ...] = ()
    """Template and defaults that were merged under the configuration that was sent, the more specific first, and which values
    they gave. `config` is the merged one."""
    rungs: str = Field(default="", exclude_if=lambda value: not value)
    """Lengths at which the search compares trials, and most trials, in words. Absent: it compares at no rungs."""
    wall_hours_max: float | None = None
    """Longest time in hours that it may run: of its configuration or its workspace, whichever ends first. Null: no limit, or it
    has ended."""
    wall_seconds: float | None = None
    """Time that it ran up to `wall_since_us`, without waiting and pauses. Null: it has ended."""
    wall_since_us: int | None = None
    """Since then, a trial of it always held its slots. Null: none does."""
    canceled_because: str = ""
    """Which limit it reached, in one sentence, where the cluster canceled it. Empty: it did not."""


class TrialView(Model):
    id: str
    experiment_id: int
    number: int
    state: TrialState
    hyperparameters: dict[str, Any]
    seed: int
    target_length: int
    """In the unit of the experiment's `searcher.max_length`."""
    batches: int
    length: int
    """The furthest point reached, in batches and in the unit of `target_length`."""
    latest_metric: float | None
    best_metric: float | None
    best_batches: int | None
    allocation_id: str | None
    """Present allocation; null if it does not run."""
    allocations: int
    """Number of allocations so far: 1 if it was never interrupted."""
    failures: int
    error: str | None
    reason: str
    """Why the search last decided about it."""
    excluded_agents: list[str] = []
    """Agents on which it is not placed again, because of a line in its log."""
    stragglers: list[StragglerView] = []
    """Slow ranks of the latest run that had any."""
    said_us: int | None = None
    """When its workers last reported something: a report or a line of their log. Null: it has none now."""
    silent_seconds: float | None = None
    """Since then."""
    leaving_us: int | None = None
    """When its workers were told to save and leave; those that do not leave in time are killed."""
    setbacks: int = 0
    """Failures and losses in a row with nothing saved or validated between, where it pauses before the next start."""
    restart_at_us: int | None = None
    """When that pause ends."""
    breaks: list[str] = []
    """Why it is not resumed or repeated exactly, as far as its worker noticed up to its latest checkpoint."""
    unmanaged: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: a run of a program that Tenuto did not start; its batches are the largest step that it logged."""
    requested_us: int
    ended_us: int | None


class GoalView(Model):
    metric: str
    smaller_is_better: bool


class FrontTrialView(Model):
    """A trial that no other one beats in all goals."""

    trial_id: str
    state: TrialState
    length: int
    """Of the validation compared: the trial's last one with all goals."""
    values: dict[str, float]
    """The goals' metrics."""
    hyperparameters: dict[str, Any]


class ParetoView(Model):
    goals: tuple[GoalView, ...]
    compared: int
    """Trials that reported all goals."""
    front: tuple[FrontTrialView, ...]
    """The best in the first goal come first."""


class ValidationView(Model):
    trial_id: str
    batches: int
    length: int
    time_us: int
    metrics: dict[str, float]
    metric: float | None
    """The searcher's metric."""


class MetricPointView(Model):
    """Training metrics, averaged since the point before."""

    trial_id: str
    batches: int
    time_us: int
    metrics: dict[str, float]


class LogLineView(Model):
    line: int
    """Grows; ask for the lines `after` the last one you have."""
    trial_id: str
    allocation_id: str
    rank: int
    stream: str
    time_us: int
    text: str


class StoreView(Model):
    name: str
    type: str
    url: str


class CheckpointView(Model):
    id: str
    trial_id: str
    experiment_id: int
    allocation_id: str
    batches: int
    length: int
    size_bytes: int
    location: str
    metric: float | None
    """The searcher's metric, validated at the same number of batches."""
    saved_us: int
    deleted_us: int | None
    delete_reason: str | None
    damaged_us: int | None = None
    damage: str | None = None
    """Damage found when a run was last to resume from it; null: no run found it damaged."""
    resumed_from: str | None = None
    """The checkpoint that this run went on from instead; null where none could be used."""


class CheckpointDetail(CheckpointView):
    files: tuple[CheckpointFile, ...]


class CheckpointVerdict(Model):
    id: str
    ok: bool
    problems: tuple[str, ...]
    """Problems found, file by file."""
    files: int
    size_bytes: int


class OrphanView(Model):
    experiment_id: int
    url: str
    size_bytes: int
    reason: str


class SweepView(Model):
    """Files that were stored but never recorded."""

    dry_run: bool
    orphans: tuple[OrphanView, ...]
    size_bytes: int
    problems: tuple[str, ...]
    """Stores that could not be looked at."""


class SlotView(Slot):
    enabled: bool
    allocation_id: str | None
    """Allocation that holds it now; null if it is free."""


class AgentView(Model):
    id: str
    pool: str
    host: str
    version: str
    state: AgentState
    reason: str
    slots: tuple[SlotView, ...]
    auxiliary: tuple[str, ...] = ()
    """Live allocations of trials without slots on it."""
    joined_us: int
    lost_us: int | None
    unlimited: str = ""
    """Why its runs are without some of the limits that its operator set; empty: they have them, or none are set."""
    runtimes: tuple[str, ...] = ("process",)
    """How it can run workers: process, docker. A trial that names an image needs docker."""
    notice: str = ""
    """Words of the provider of its machine on that machine's end, such as a preemption; empty: it gave no notice."""


class TamperedView(Model):
    position: int
    reason: str


class VerifiedView(Model):
    ok: bool
    events: int
    head: int
    head_hash: str
    """Hex."""
    tampered: TamperedView | None
    """The first row that does not fit the chain, or what somebody else knows of the log and it does not hold."""
    anchors: int
    """Notes of the log's end that were compared."""
    unchecked: tuple[str, ...]
    """Targets of anchors that could not be read, each with the reason."""


class AnchoredView(Model):
    anchor: Anchor
    kept: tuple[str, ...]
    """Targets that have it."""
    failed: dict[str, str]
    """By target: why it has not."""


class ConsumerView(Model):
    name: str
    position: int
    lag: int
    """Events recorded that it has not taken yet."""


class WebhookTroubleView(Model):
    name: str
    waiting: int
    """Notices that are not delivered yet."""
    parked: int
    """Notices that were given up, until somebody has them sent again."""
    answer: str
    """What the target said last; empty where it takes what is sent."""


class AutomationTroubleView(Model):
    name: str
    state: Literal["running", "silent", "ended"]
    """silent: nothing is heard of its process."""
    parked: int
    """Events that it could not handle, kept with their reasons."""
    problem: str
    """Rule and error of an event that is being tried again; empty where none is."""


class StatusView(Model):
    bus: BusState
    version: str
    head: int
    """Position of the last event."""
    consumers: tuple[ConsumerView, ...]
    parked: int
    """Reports and events that could not be read or handled, kept aside with their reasons."""
    backlog: tuple[LaneBacklog, ...]
    """Reports of agents that are not in the record yet, by agent and lane, the longest first."""
    silent_trials: tuple[SilentTrialView, ...] = ()
    """Of whose workers nothing was heard for ten minutes, the longest silent first, twenty at most: they may hang."""
    webhooks: tuple[WebhookTroubleView, ...] = ()
    """Those whose target does not take what is sent, or of which notices are parked; twenty at most."""
    automations: tuple[AutomationTroubleView, ...] = ()
    """Those with parked events or failing rules, and those of which nothing is heard; twenty at most."""
    agents: int
    slots: int
    slots_used: int
    context_bytes_max: int = 0
    """Longest packed model directory that a submission may bring."""
    door: DoorView | None = None
