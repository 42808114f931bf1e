"""Answers about trials, their workers, metrics and checkpoints. Times end in `_us`: microseconds since 1970-01-01 UTC. NaN and
infinities are the strings "NaN", "Infinity" and "-Infinity", as everywhere in Tenuto's JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.events.trial import CheckpointFile

"""Workers in answers of the REST interface: their allocations, the present ones, and the time since their last report."""
AllocationState = Literal["granted", "starting", "running", "preempting", "resizing", "exited", "released"]


class AllocationView(Model):
    id: str
    trial_id: str
    experiment_id: int
    pool: str
    state: AllocationState
    slots: tuple[AgentSlots, ...]
    reason: str
    outcome: str | None
    exit_code: int | None
    error: str | None
    granted_us: int
    started_us: int | None
    leaving_us: int | None = None
    """Time at which its workers were first told to save and leave, or were killed. Null: they were not."""
    leaving_reason: str | None = None
    exited_us: int | None
    released_us: int | None


class WorkersView(Model):
    """Present workers of an experiment."""

    trial_id: str
    allocation_id: str
    agent_ids: tuple[str, ...]
    said_us: int | None
    """Time of their last sign of life: a report or a line of their log. Null: they have not begun."""
    silent_seconds: float | None
    """Time since then."""


class SilentTrialView(Model):
    trial_id: str
    silent_seconds: float
    """Time since its workers' last sign of life: a report or a line of their log."""


class StragglerView(Model):
    """A rank that holds up the others in every step."""

    allocation_id: str
    rank: int
    slots: int
    agent_id: str
    own_seconds: float
    """Time of a step on this worker, in seconds, without waiting for others."""
    usual_seconds: float
    """Median of the same time on the other ranks."""


"""Bodies of responses in the REST interface. Times end in `_us`: microseconds since 1970-01-01 UTC. NaN and infinities are the
strings "NaN", "Infinity" and "-Infinity", as everywhere in Tenuto's JSON."""
TrialState = Literal["queued", "starting", "running", "paused", "stopping", "completed", "early_stopped", "failed", "canceled"]


class TrialView(Model):
    id: str
    experiment_id: int
    number: int
    state: TrialState
    hyperparameters: dict[str, Any]
    seed: int
    target_length: int
    """Length that the search wants, in the unit of the experiment's `searcher.max_length`."""
    batches: int
    length: int
    """Furthest point reached, in the unit of `target_length`; `batches` is the same in batches."""
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
    """Reason of the search's last decision about it."""
    excluded_agents: list[str] = []
    """Agents on which it is not placed again, because of a line in its log."""
    stragglers: list[StragglerView] = []
    """Slow ranks of the latest run that had any."""
    said_us: int | None = None
    """Time of its workers' last sign of life: a report or a line of their log. Null: it has no workers now."""
    silent_seconds: float | None = None
    """Time since then."""
    leaving_us: int | None = None
    """Time at which its workers were told to save and leave; those that do not leave in time are killed."""
    setbacks: int = 0
    """Failures and losses in a row with nothing saved or validated between, where it pauses before the next start."""
    restart_at_us: int | None = None
    """End of that pause."""
    breaks: list[str] = []
    """Reasons why it is not resumed or repeated exactly, as far as its worker noticed up to its latest checkpoint."""
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
    """Length at the validation compared: the trial's last one with all goals."""
    values: dict[str, float]
    """Values of the goals' metrics."""
    hyperparameters: dict[str, Any]


class ComparedTrialView(Model):
    """A trial that reported all goals."""

    trial_id: str
    values: tuple[float, ...]
    """Values in the order of the goals."""
    on_front: bool
    """True: no other trial beats it in all goals."""


class ParetoView(Model):
    goals: tuple[GoalView, ...]
    compared: int
    """Number of trials that reported all goals."""
    front: tuple[FrontTrialView, ...]
    """Trials of the front, the best in the first goal first."""
    trials: tuple[ComparedTrialView, ...] = Field(default=(), exclude_if=lambda value: not value)
    """All compared trials, by number, with `all`; else absent."""


class ValidationView(Model):
    trial_id: str
    batches: int
    length: int
    time_us: int
    metrics: dict[str, float]
    metric: float | None
    """Value of the searcher's metric."""


class MetricPointView(Model):
    """Training metrics, averaged since the point before."""

    trial_id: str
    batches: int
    time_us: int
    metrics: dict[str, float]


class LogLineView(Model):
    line: int
    """Number of the line, which grows; ask for the lines `after` the last one you have."""
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
    """Value of the searcher's metric, validated at the same number of batches."""
    saved_us: int
    deleted_us: int | None
    delete_reason: str | None
    damaged_us: int | None = None
    damage: str | None = None
    """Damage found when a run was last to resume from it; null: no run found it damaged."""
    resumed_from: str | None = None
    """Checkpoint that this run resumed from instead; null if none was usable."""


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
    """Stores that could not be read."""


class CurveView(Model):
    trial_id: str
    metric: str
    since: int
    """Batches from which on these points replace those of earlier answers."""
    batches: list[int]
    values: list[float]
    time_us: list[int] | None


class CurvesView(Model):
    """Training metrics for a picture."""

    width: int
    """Batches of one column."""
    first: int
    """Batches at which the first column begins."""
    last: int
    """The last batches of the last column."""
    cursor: str
    whole: bool
    """False: curves that are missing have not changed since the answer whose cursor was given."""
    metrics: list[str]
    """Names of all metrics of these trials; empty where `whole` is false."""
    curves: list[CurveView]
