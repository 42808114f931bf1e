"""Answers about experiments, and about records that compare them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.record import ConfigLayer, DataFingerprint, EnvironmentRecord, Origin, Parent
from tenuto.services.gateway.experiments.policies.likely_effect import Effect, Kind
from tenuto.services.gateway.trials.views import TrialState

ExperimentState = Literal["active", "paused", "canceling", "completed", "failed", "canceled", "unmanaged"]
"""`unmanaged`: its trials are runs of programs that Tenuto did not start; it has no search, no configuration and no end."""


class ExperimentView(Model):
    id: int
    name: str
    description: str
    labels: tuple[str, ...]
    archived: bool = False
    """True: lists leave it out, unless they ask for archived ones."""
    deletion_due_us: int | None = None
    """Time of its deletion, unless that is undone before. Null: it is not to be deleted, or is deleted."""
    deleted_us: int | None = None
    """Time at which its files, metrics and log lines were deleted."""
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
    """Reason why it failed."""
    best_trial_id: str | None
    best_metric: float | None
    trials: dict[TrialState, int]
    """Trials by state; states without trials are left out."""


class ExperimentDetail(ExperimentView):
    note: str = ""
    """Note that users wrote about it after its submission."""
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
    has ended, or this is an earlier moment."""
    wall_seconds: float | None = None
    """Time that it ran up to `wall_since_us`, without waiting and pauses. Null: it has ended, or this is an earlier moment."""
    wall_since_us: int | None = None
    """Time since which a trial of it has always held its slots. Null: none does."""
    canceled_because: str = ""
    """Limit at which the cluster canceled it, in one sentence. Empty: it did not."""
    as_of_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time of the event at the position `at`. Absent: this is now."""


class StartView(Model):
    """One start of a trial."""

    allocation_id: str
    time_us: int
    environment_hash: str | None
    data: tuple[DataFingerprint, ...]
    changed_data: tuple[str, ...]
    """Names of data that were not what they had been before."""


class TrialRecordView(Model):
    trial_id: str
    context_hash: str
    origin: Origin | None
    parent: Parent | None
    hyperparameters: dict[str, Any]
    seed: int
    starts: tuple[StartView, ...]
    environments: dict[str, EnvironmentRecord]
    """Environments by hash."""


class DifferenceView(Model):
    kind: Kind
    effect: Effect
    name: str
    a: Any
    b: Any
    overridden: bool
    note: str
    detail: str


class MetricPairView(Model):
    batches: int
    name: str
    a: float | None
    b: float | None
    equal: bool


class FilePairView(Model):
    batches: int
    path: str
    a: str | None
    """SHA-256."""
    b: str | None
    equal: bool


class ResultsView(Model):
    metric: str
    trial_a: str | None
    trial_b: str | None
    best_a: float | None
    best_b: float | None
    metrics: tuple[MetricPairView, ...]
    """Validations that both made at the same number of batches: the first 10,000, starting with the first that differs."""
    metrics_left_out: int
    """Pairs that were compared too, and are not among `metrics`."""
    validations: int
    """Number of compared validations, which both made at the same number of batches."""
    first_difference_batches: int | None
    metrics_equal: bool | None
    """None: no validation at the same number of batches."""
    weights_equal: bool | None
    """None: no checkpoint at the same number of batches."""
    files: tuple[FilePairView, ...]


class DiffView(Model):
    a: str
    b: str
    differences: tuple[DifferenceView, ...]
    """The most likely cause of other results first."""
    results: ResultsView
    gaps: tuple[str, ...]
    """Parts that could not be compared, each with the reason."""


class ReproductionView(Model):
    experiment_id: int
    trial_id: str
    reproduces: str
    """The trial that was to be reproduced."""
    ended: bool
    equal: bool | None
    """Metrics and weights are equal, bit for bit. None: it is not known yet, or there is nothing to compare."""
    results: ResultsView
    differences: tuple[DifferenceView, ...]
    causes: tuple[str, ...] = ()
    """Sentences that name likely causes of a difference, the likeliest first; empty if equal."""


class ReproduceBody(Model):
    trial_id: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,17}-[1-9][0-9]{0,8}$")
    """None: the experiment's best trial."""
    trust: bool = False
    """Load the state that another user's trial pickled, which runs as code of one's own."""


class DeriveBody(Model):
    overrides: dict[str, Any] = {}
    """Changes, in the shape of a configuration."""
    origin: Origin | None = None
    trust: bool = False
    """Consent, for a continuation, to load the state that another user's trials pickled, which runs as code of your own."""


class ImportanceView(Model):
    name: str
    """A nested hyperparameter's has dots."""
    importance: float
    """Part of the metric's variance, of 1 in all, that it explains by itself. The rest are effects of several together."""


class ImportancesView(Model):
    method: str
    metric: str
    compared: int
    """Trials that it was found from."""
    more: bool
    """True: there are more trials with a metric."""
    importances: tuple[ImportanceView, ...]
    """The most important first."""
    left_out: tuple[str, ...]
    """Hyperparameters that are the same in all trials, that some trials lack, or that differ in each like a name."""


class SparkView(Model):
    experiment_id: int
    batches: tuple[int, ...]
    values: tuple[float, ...]
    """The searcher's metric of the best trial, thinned out."""


class ContextFileView(Model):
    path: str
    size_bytes: int


class ContextFilesView(Model):
    context_hash: str
    files: tuple[ContextFileView, ...]
    more: bool
    """True: there are more files than are listed."""


class ContextFileContent(Model):
    path: str
    size_bytes: int
    text: str | None
    """Null: the file is no text."""
    cut: bool
    """True: the text is only the file's beginning."""


class RungTrialView(Model):
    """A trial at a rung."""

    trial_id: str
    metric: float | None
    """Value with which it was compared there. Null: it failed, or reported no number, and counts as worst."""
    fate: Literal["waits", "goes on", "stopped", "completed"]
    sentence: str
    """Reason of the newest decision on it there."""
    position: int
    """Position of that decision."""


class RungView(Model):
    key: str
    """Differs from that of any other rung of the search."""
    rung: int
    bracket: int | None
    """Null: the search has one bracket, or a method of its own without brackets."""
    length: int
    unit: str
    """Unit of the length: batches or epochs."""
    cut_off: float | None
    """Value of the last trial that may go on, by the newest comparison. Null: there are too few."""
    trials: tuple[RungTrialView, ...]


class RungsView(Model):
    rungs: tuple[RungView, ...]
    """All rungs, by bracket and length."""


class ChangedValueView(Model):
    name: str
    """A nested hyperparameter's has dots."""
    before: Any
    """Value of the parent; null if it has none."""
    after: Any
    """Value of the copy; null if it has none."""


class LineageTrialView(Model):
    trial_id: str
    number: int
    parent_id: str | None
    """Trial that it goes on from. Null: it is of the first generation."""
    generation: int
    """0 for the first generation."""
    parent_metric: float | None
    """Value of the parent when it was copied."""
    source_checkpoint_id: str | None
    """Checkpoint that it begins from. Null: it starts afresh."""
    hyperparameters: dict[str, Any]
    outcome: Literal["completed", "early_stopped", "failed", "canceled"] | None
    """Null: the search has not stopped it."""
    changed: tuple[ChangedValueView, ...]
    """Hyperparameters that differ from the parent's."""
    sentences: tuple[str, ...]
    """Reasons why it was made, and of its end."""
    position: int
    """Position of its request."""
    time_us: int


class LineageView(Model):
    trials: tuple[LineageTrialView, ...]
    """All trials, in the order in which they were requested."""


class MomentsView(Model):
    positions: list[int]
    """Positions of the log at which something changed, in order."""
    times_us: list[int]
    """Time of each."""
