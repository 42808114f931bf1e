"""Records in answers of the REST interface: environment and data of a trial, differences between two, reproductions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord, Origin, Parent
from tenuto.services.gateway.policies.likely_effect import Effect, Kind


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
    """By hash."""


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
    """Of validations that both made at the same number of batches: the first 10,000 from the first one that differs on."""
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
    """Of a continuation: load the state that another user's trials pickled, which runs as code of one's own."""
