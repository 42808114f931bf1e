"""Decisions of the search. Owner: searcher. Stream: search/<experiment>."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.events.registry import EventData, Reason, event


class Search(EventData):
    OWNER: ClassVar[str] = "searcher"
    STREAM: ClassVar[str] = "search"

    experiment_id: int

    def stream_key(self) -> str:
        return str(self.experiment_id)


class PluginMethod(Model):
    """A search method of another package, with its plan: the record can be read where the package is not installed."""

    package: str
    """Name of the package."""
    version: str
    """Version of the package that started the search."""
    rules: str
    """Version of the method's rules, which decide this experiment to its end."""
    trials_max: int
    brackets: tuple[Bracket, ...]
    best_max: tuple[int, ...]
    """Number of best trials that the rules consider at a rung, for each bracket."""
    remembers: Literal["nothing", "living", "all"] = "nothing"
    """Trials whose hyperparameters the rules look at later."""
    replaces: bool = True
    """True if another trial takes the place of one whose hyperparameters the model code refused,"""
    keeps_places: bool = False
    """and draws what that place would have drawn in any order of arrival."""

    @property
    def named(self) -> str:
        return f"{self.package} {self.version}"


@event("ExperimentStarted")
class ExperimentStarted(Search):
    method: str
    rule_version: int
    """Version of the search rules that decide this experiment to its end; replay uses the same version."""
    plugin: PluginMethod | None = Field(default=None, exclude_if=lambda value: value is None)
    """Package of the method and its plan. None: the method is Tenuto's own."""


@event("TrialRequested")
class TrialRequested(Search):
    trial_id: str
    trial_number: int = Field(ge=1)
    hyperparameters: dict[str, Any]
    seed: int
    target_length: int = Field(gt=0)
    """Total length to train to, in the unit of `searcher.max_length` (batches or epochs)."""
    source_checkpoint_id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    parent_trial_id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Trial whose checkpoint and hyperparameters this one goes on from (population-based training). None: it starts afresh."""
    bracket: int = Field(default=0, ge=0, exclude_if=lambda value: not value)
    """Number of the bracket in which the trial competes; 0 is the first, or the only one."""
    reason: Reason


@event("TrialExtended")
class TrialExtended(Search):
    trial_id: str
    target_length: int = Field(gt=0)
    reason: Reason


@event("TrialPaused")
class TrialPaused(Search):
    """The trial reached its target and waits, without slots and with its checkpoint, until it is extended or stopped."""

    trial_id: str
    reason: Reason


@event("TrialStopped")
class TrialStopped(Search):
    """The trial gets no more budget: it finished, lost against others, failed too often, or was canceled."""

    trial_id: str
    outcome: Literal["completed", "early_stopped", "failed", "canceled"]
    reason: Reason


@event("ExperimentCompleted")
class ExperimentCompleted(Search):
    best_trial_id: str | None
    best_metric: float | None
    trials: int
    reason: Reason


@event("ExperimentFailed")
class ExperimentFailed(Search):
    error: str
    trials: int


@event("ExperimentCanceled")
class ExperimentCanceled(Search):
    trials: int
