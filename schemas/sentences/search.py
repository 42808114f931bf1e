"""Reasons why trials start: the numbers of the searcher's rules for new trials, and fields that its other rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.sentences.amounts import amount
from tenuto.schemas.sentences.rules import Data, Numbers, rule

METHODS_COMPARED = ("sha", "hyperband", "asha", "adaptive_asha", "bohb", "pbt")
PLUGIN = "plugin"
"""Stands for the method's name in rules of any method of another package: they are rules that all methods have in common."""
METHODS_SAMPLED = ("tpe", "gp", "cmaes", "nsga2")
METHODS_DRAWN = ("single", "random", "sobol", "grid", PLUGIN, *METHODS_COMPARED, *METHODS_SAMPLED)


@dataclass(frozen=True, kw_only=True)
class Scored(Numbers):
    """Metric of a trial."""

    metric: float | None
    """Metric as reported, or the mean of several validations. None: missing or not finite."""
    metric_name: str
    averaged: int = 1
    """Most validations in the mean."""

    @property
    def shown(self) -> str:
        if self.metric is None:
            return f"{self.metric_name} is missing or not finite"
        mean = f" (mean of at most {self.averaged} validations)" if self.averaged > 1 else ""
        return f"{self.metric_name} {self.metric:.6g}{mean}"


@dataclass(frozen=True, kw_only=True)
class AtRung(Numbers):
    """Rung at which the trial is compared with others."""

    rung: int
    """Number of the rung, from 0 in each bracket."""
    length: int
    """Length of the rung, in `unit`."""
    unit: Unit = "batches"
    bracket: int | None = None
    """Number of the bracket, from 0. None: the search has one bracket only."""

    @property
    def place(self) -> str:
        """The rung, such as `rung 2 (16 epochs)`, with its bracket if there are several."""
        where = f"rung {self.rung} ({amount(self.length, self.unit)})"
        return where if self.bracket is None else f"{where} of bracket {self.bracket}"


# A new trial.


@dataclass(frozen=True, kw_only=True)
class Requested(Numbers):
    """A new trial: a place was free, and no waiting trial was due."""

    WORD: ClassVar[str] = ""
    """Suffix of the rule's name, after the method's name."""

    trials_max: int
    """Most trials that the search may have."""
    refused: int = 0
    """Number of trials replaced because the model code refused their hyperparameters; the search may have as many more."""
    active: int
    """Number of trials that trained or waited for slots when this one was requested."""
    concurrent_trials_max: int
    """Most trials that may train or wait for slots at once."""
    unit: Unit = "batches"
    """Unit of the length that the trial trains to."""
    rung: int = 0
    """First rung that the trial trains to, from 0 in its bracket."""

    def sentence(self, about: Data) -> str:
        chosen = self.chosen(about)
        return (
            f"Trial {about['trial_number']} of at most {self.trials_max + self.refused:,}, as {self.active} of at most"
            f" {self.concurrent_trials_max} are active and none that waits is due; it trains to"
            f" {amount(about['target_length'], self.unit)}." + (f" {chosen}." if chosen else "")
        )

    def chosen(self, about: Data) -> str:
        """Clause about the choice of the hyperparameters; may be empty."""
        return ""


@rule(TrialRequested.TYPE, *(f"{method}.new_trial" for method in METHODS_DRAWN))
@dataclass(frozen=True, kw_only=True)
class NewTrial(Requested):
    WORD: ClassVar[str] = "new_trial"

    replaces: int | None = None
    """Number of the trial that this one replaces, because the model code refused its hyperparameters. None: it replaces none."""

    def chosen(self, about: Data) -> str:
        return "" if self.replaces is None else _follows(about, self.replaces)


@rule(TrialRequested.TYPE, f"{PLUGIN}.chosen")
@dataclass(frozen=True, kw_only=True)
class Chosen(Requested):
    """A method of another package chose the hyperparameters."""

    WORD: ClassVar[str] = "chosen"

    says: str
    """The method's own clause about its choice."""

    def chosen(self, about: Data) -> str:
        return self.says[:1].upper() + self.says[1:]


@rule(TrialRequested.TYPE, "bohb.model")
@dataclass(frozen=True, kw_only=True)
class Modelled(Requested):
    WORD: ClassVar[str] = "model"

    model_rung: int
    """Rung whose results the model was fitted to."""
    results: int
    """Number of trials with a result at that rung."""
    good: int
    """Number of these trials that the model counts as good."""
    others: int
    """Number of these trials that the model compares the good ones with."""

    def chosen(self, about: Data) -> str:
        return (
            f"Its hyperparameters come from a model of {self.results} results at rung {self.model_rung} ({self.good} good ones"
            f" against {self.others} others)"
        )


@rule(TrialRequested.TYPE, "pbt.copy")
@dataclass(frozen=True, kw_only=True)
class Copied(Requested):
    """The trial goes on from the checkpoint of a good trial. If it replaces a refused copy, the parent's metric is not given."""

    WORD: ClassVar[str] = "copy"

    generation: int
    """Number of the generation that was complete, from 0."""
    parent_rank: int | None = None
    """Rank of the parent in that generation; the best has 1."""
    of: int | None = None
    """Number of trials in that generation."""
    parent_metric: float | None = None
    metric_name: str = ""
    replaces: int | None = None
    """Number of the trial that this one replaces, as in `NewTrial`."""
    anew: bool = False
    """True: the parent has saved no checkpoint, so this trial begins at batch 0 (since version 6 of the rules)."""

    def chosen(self, about: Data) -> str:
        parent = about["parent_trial_id"]
        if self.replaces is not None:
            return (
                f"{_follows(about, self.replaces)}: again a copy of trial {parent} {self._start}, with otherwise changed"
                " hyperparameters"
            )
        metric = Scored(metric=self.parent_metric, metric_name=self.metric_name).shown
        return (
            f"It is a copy of trial {parent} (rank {self.parent_rank} of {self.of} in generation {self.generation}, {metric})"
            f" {self._start}, with changed hyperparameters"
        )

    @property
    def _start(self) -> str:
        if self.anew:
            return "trained anew from the beginning, as that one has saved no checkpoint"
        return "from its checkpoint"


@rule(TrialRequested.TYPE, *(f"{method}.proposed" for method in METHODS_SAMPLED))
@dataclass(frozen=True, kw_only=True)
class Proposed(Requested):
    """The hyperparameters were proposed by a sampler outside the searcher's rules."""

    WORD: ClassVar[str] = "proposed"

    sampler: str
    """Name of the sampler. `random`: the method had too few results yet."""
    results: int
    """Number of results that the sampler had."""
    method: str = ""
    startup_trials: int = 0
    """Number of results with which the method begins to propose. The sentence names both numbers only for a random draw."""

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
    """Class of the user's searcher, such as `my_search.py:MySearch`."""
    cause_position: int
    """Log position of the event that the searcher decided on."""
    index: int
    """Index of the operation among those of that decision, from 0."""

    @property
    def asked(self) -> str:
        return f"Asked for by {self.searcher} on the event at position {self.cause_position}"


@rule(TrialRequested.TYPE, "custom.create")
@dataclass(frozen=True, kw_only=True)
class Created(Requested, Asked):
    WORD: ClassVar[str] = "create"

    def chosen(self, about: Data) -> str:
        return self.asked
