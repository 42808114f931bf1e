"""Why trials start: the numbers of the searcher's rules for new trials, and those that its other rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.sentences.amounts import amount
from tenuto.schemas.sentences.rules import Data, Numbers, rule

METHODS_COMPARED = ("sha", "hyperband", "asha", "adaptive_asha", "bohb", "pbt")
METHODS_SAMPLED = ("tpe", "gp", "cmaes", "nsga2")
METHODS_DRAWN = ("single", "random", "sobol", "grid", *METHODS_COMPARED, *METHODS_SAMPLED)


@dataclass(frozen=True, kw_only=True)
class Scored(Numbers):
    """A trial's metric."""

    metric: float | None
    """As reported, or the mean of several. None: missing or not finite."""
    metric_name: str
    averaged: int = 1
    """Validations of which it is the mean, at most."""

    @property
    def shown(self) -> str:
        if self.metric is None:
            return f"{self.metric_name} is missing or not finite"
        mean = f" (mean of at most {self.averaged} validations)" if self.averaged > 1 else ""
        return f"{self.metric_name} {self.metric:.6g}{mean}"


@dataclass(frozen=True, kw_only=True)
class AtRung(Numbers):
    """Where a trial is compared with others."""

    rung: int
    """Counts from 0 in each bracket."""
    length: int
    """Of that rung, in `unit`."""
    unit: Unit = "batches"
    bracket: int | None = None
    """Counts from 0. None: the search has one bracket only."""

    @property
    def place(self) -> str:
        """`rung 2 (16 epochs)`, with its bracket where there are several."""
        where = f"rung {self.rung} ({amount(self.length, self.unit)})"
        return where if self.bracket is None else f"{where} of bracket {self.bracket}"


# A new trial.


@dataclass(frozen=True, kw_only=True)
class Requested(Numbers):
    """A place was free, and nobody who waits was due."""

    WORD: ClassVar[str] = ""
    """The rule's name behind that of the method."""

    trials_max: int
    """Trials that the search may have."""
    refused: int = 0
    """Trials that were replaced because the model code refused their hyperparameters: the search may have so many more."""
    active: int
    """Trials that trained, or waited for slots, when it was asked for."""
    concurrent_trials_max: int
    """Most of these at once."""
    unit: Unit = "batches"
    """Of the length that it trains to."""
    rung: int = 0
    """To which it trains first; counts from 0 in its bracket."""

    def sentence(self, about: Data) -> str:
        chosen = self.chosen(about)
        return (
            f"Trial {about['trial_number']} of at most {self.trials_max + self.refused:,}, as {self.active} of at most"
            f" {self.concurrent_trials_max} are active and none that waits is due; it trains to"
            f" {amount(about['target_length'], self.unit)}." + (f" {chosen}." if chosen else "")
        )

    def chosen(self, about: Data) -> str:
        """How its hyperparameters came about, or nothing."""
        return ""


@rule(TrialRequested.TYPE, *(f"{method}.new_trial" for method in METHODS_DRAWN))
@dataclass(frozen=True, kw_only=True)
class NewTrial(Requested):
    WORD: ClassVar[str] = "new_trial"

    replaces: int | None = None
    """Number of the trial whose place it takes, as the model code refused that one's hyperparameters."""

    def chosen(self, about: Data) -> str:
        return "" if self.replaces is None else _follows(about, self.replaces)


@rule(TrialRequested.TYPE, "bohb.model")
@dataclass(frozen=True, kw_only=True)
class Modelled(Requested):
    WORD: ClassVar[str] = "model"

    model_rung: int
    """Whose results the model was fitted to."""
    results: int
    """Trials that had one there."""
    good: int
    """Of these, trials that the model takes for good,"""
    others: int
    """and those that it sets against them."""

    def chosen(self, about: Data) -> str:
        return (
            f"Its hyperparameters come from a model of {self.results} results at rung {self.model_rung} ({self.good} good ones"
            f" against {self.others} others)"
        )


@rule(TrialRequested.TYPE, "pbt.copy")
@dataclass(frozen=True, kw_only=True)
class Copied(Requested):
    """It goes on from the checkpoint of a good trial. Of one that replaces a refused copy, no metric of the parent is said."""

    WORD: ClassVar[str] = "copy"

    generation: int
    """Which one was complete; counts from 0."""
    parent_rank: int | None = None
    """Of the parent in it; the best has 1."""
    of: int | None = None
    """Trials in it."""
    parent_metric: float | None = None
    metric_name: str = ""
    replaces: int | None = None
    """As in `NewTrial`."""

    def chosen(self, about: Data) -> str:
        parent = about["parent_trial_id"]
        if self.replaces is not None:
            return (
                f"{_follows(about, self.replaces)}: again a copy of trial {parent} from its checkpoint, with otherwise changed"
                " hyperparameters"
            )
        metric = Scored(metric=self.parent_metric, metric_name=self.metric_name).shown
        return (
            f"It is a copy of trial {parent} (rank {self.parent_rank} of {self.of} in generation {self.generation}, {metric})"
            " from its checkpoint, with changed hyperparameters"
        )


@rule(TrialRequested.TYPE, *(f"{method}.proposed" for method in METHODS_SAMPLED))
@dataclass(frozen=True, kw_only=True)
class Proposed(Requested):
    """By a sampler outside the searcher's rules."""

    WORD: ClassVar[str] = "proposed"

    sampler: str
    """`random`: the method had too few results yet."""
    results: int
    """That it had."""
    method: str = ""
    startup_trials: int = 0
    """Results with which the method begins. Both are said of a random draw only."""

    def chosen(self, about: Data) -> str:
        if self.sampler == "random":
            return (
                f"Its hyperparameters are a random draw: {self.method} begins when it has {self.startup_trials} results, and"
                f" there are {self.results}"
            )
        return f"Its hyperparameters were proposed by {self.sampler} from {self.results} results"


def _follows(about: Data, replaces: int) -> str:
    trial = f"{about['experiment_id']}-{replaces}"
    return f"It takes the place of trial {trial}, whose hyperparameters the model code refused"


# What a user's own search asked for.


@dataclass(frozen=True, kw_only=True)
class Asked(Numbers):
    searcher: str
    """The user's class, such as `my_search.py:MySearch`."""
    cause_position: int
    """Position in the log of the event that it decided on."""
    index: int
    """Place of the operation among those of that decision; counts from 0."""

    @property
    def asked(self) -> str:
        return f"Asked for by {self.searcher} on the event at position {self.cause_position}"


@rule(TrialRequested.TYPE, "custom.create")
@dataclass(frozen=True, kw_only=True)
class Created(Requested, Asked):
    WORD: ClassVar[str] = "create"

    def chosen(self, about: Data) -> str:
        return self.asked
