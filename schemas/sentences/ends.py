"""Sentences about the end of a trial or a search with any method, and about the decisions of a user's own searcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.amounts import amount, times
from tenuto.schemas.sentences.rules import Data, Numbers, rule
from tenuto.schemas.sentences.search import METHODS_COMPARED, PLUGIN, Asked, AtRung, Scored

# A user's own search.


@rule(TrialExtended.TYPE, "custom.extend")
@dataclass(frozen=True, kw_only=True)
class CustomExtended(Asked):
    length: int
    """Length that the trial now trains to, in `unit`."""
    unit: Unit = "batches"

    def sentence(self, about: Data) -> str:
        return f"{self.asked}: it trains on to {amount(self.length, self.unit)}."


@rule(TrialPaused.TYPE, "custom.wait")
@dataclass(frozen=True, kw_only=True)
class CustomWaits(Scored):
    length: int
    """Target of the trial, which it has reached, in `unit`."""
    unit: Unit = "batches"

    def sentence(self, about: Data) -> str:
        return (
            f"{self.shown} at {amount(self.length, self.unit)}, its target: it waits without slots until the search's own class"
            " extends or stops it."
        )


@rule(TrialStopped.TYPE, "custom.stop")
@dataclass(frozen=True, kw_only=True)
class CustomStopped(Asked):
    def sentence(self, about: Data) -> str:
        return f"{self.asked}."


@rule(TrialStopped.TYPE, "custom.never_started")
@dataclass(frozen=True, kw_only=True)
class NeverStarted(Numbers):
    def sentence(self, about: Data) -> str:
        return "The search's own class stopped it before it could start."


@rule(TrialStopped.TYPE, "custom.end")
@dataclass(frozen=True, kw_only=True)
class CustomEnded(Numbers):
    length: int
    """Target of the trial, in the search's unit."""

    def sentence(self, about: Data) -> str:
        return "The search's own class ended the search."


# How a trial ends whatever its method is.


@rule(TrialStopped.TYPE, "full_length")
@dataclass(frozen=True, kw_only=True)
class FullLength(Scored):
    length: int
    """Length that the trial reached, in `unit`."""
    unit: Unit = "batches"
    rung: int | None = None
    """Last rung of the trial's bracket. None: the method has no rungs."""
    bracket: int | None = None

    def sentence(self, about: Data) -> str:
        return f"Trained to the full length of {amount(self.length, self.unit)}: {self.shown}."


@rule(TrialStopped.TYPE, "ended_by_itself")
@dataclass(frozen=True, kw_only=True)
class EndedByItself(Scored):
    """The trial's own code ended its training before the length that the search had asked for."""

    trained: int
    """Length that the trial reached, in `unit`, rounded down."""
    batches: int
    """The same in batches."""
    length: int
    """Length that the search had asked for, in `unit`."""
    unit: Unit = "batches"
    said: str = ""
    """First line of the reason that the code gave. Empty: none."""
    validated: bool = True
    """False: the trial had reported no validation."""
    rung: int | None = None
    """Rung at which its last validation counts. None: the method compares at no rungs."""
    bracket: int | None = None

    def sentence(self, about: Data) -> str:
        where = f"{amount(self.trained, self.unit)}" + (f" (batch {self.batches:,})" if self.unit != "batches" else "")
        said = f" ({self.said.rstrip('.')})" if self.said else ""
        ended = f"Its own code ended its training at {where}, before the {amount(self.length, self.unit)} asked for{said}"
        if self.rung is None:
            place = ""
        else:
            place = " at " + AtRung(rung=self.rung, length=self.length, unit=self.unit, bracket=self.bracket).place
        if not self.validated:
            return f"{ended}, without a validation: it counts as worst{place}."
        return f"{ended}: it counts{place} by its last validation, {self.shown}."


@rule(TrialStopped.TYPE, *(f"{method}.worst" for method in (*METHODS_COMPARED, PLUGIN)))
@dataclass(frozen=True, kw_only=True)
class Worst(AtRung, Scored):
    """The trial has no metric to be compared by, so it is last at its rung."""

    rank: int
    """Rank of the trial, which is the last one."""
    of: int
    """Number of trials that came to the rung."""

    def sentence(self, about: Data) -> str:
        return f"{self.shown} at {self.place}: it counts as worst of {self.of} and is stopped."


@rule(TrialStopped.TYPE, "failed")
@dataclass(frozen=True, kw_only=True)
class FailedTrial(Numbers):
    failures: int
    """Number of the trial's failures."""
    length: int
    """Target of the trial, in `unit`."""
    unit: Unit = "batches"
    rung: int | None = None
    """Rung that the trial trained to. None: the method has no rungs."""
    bracket: int | None = None
    of: int | None = None
    """Number of trials that came to the rung, this one included."""
    waited: bool = False
    """True: the trial had reached the rung and waited there."""

    def sentence(self, about: Data) -> str:
        given_up = f"Given up after {times(self.failures, 'failure')}"
        if self.rung is None:
            return f"{given_up}."
        place = AtRung(rung=self.rung, length=self.length, unit=self.unit, bracket=self.bracket).place
        if self.waited:
            return f"{given_up} while it waited at {place}."
        return f"{given_up}; at {place} it counts as worst of {self.of}."


@rule(TrialStopped.TYPE, "invalid_hyperparameters")
@dataclass(frozen=True, kw_only=True)
class HyperparametersRefused(Numbers):
    """The model code refused the hyperparameters (`tenuto.InvalidHyperparameters`)."""

    error: str
    """First line of the code's message."""
    then: Literal["replaced", "counts_not", "point_done"]
    """Consequence. replaced: another trial takes its place. counts_not: no other trial does. point_done: this point of the
    grid is done."""
    rung: int
    length: int
    """Target of the trial, in the search's unit."""
    invalid: int
    """Number of trials that were refused so far in this search, and do not count."""

    def sentence(self, about: Data) -> str:
        then = {
            "replaced": "it counts for nothing, and another trial takes its place",
            "counts_not": "it counts for nothing",
            "point_done": "this point of the grid is done",
        }[self.then]
        return f"The model code refused its hyperparameters ({self.error}): {then}."


@rule(TrialStopped.TYPE, "cancel")
@dataclass(frozen=True, kw_only=True)
class Canceled(Numbers):
    rung: int
    length: int
    """Length of that rung, in the search's unit."""

    def sentence(self, about: Data) -> str:
        return "The experiment is canceled."


@rule(TrialStopped.TYPE, "rules_lost")
@dataclass(frozen=True, kw_only=True)
class RulesLost(Numbers):
    """The rules of a method of another package are not installed any more, or failed: the search fails when its trials have
    left."""

    error: str

    def sentence(self, about: Data) -> str:
        return f"The search cannot be decided any more, so its trials are stopped. {self.error.rstrip('.')}."


@rule(TrialStopped.TYPE, "search_over")
@dataclass(frozen=True, kw_only=True)
class Outlived(AtRung, Scored):
    """The trial waited, and no other trial runs any more."""

    rank: int
    """Rank of the trial; the best has 1."""
    of: int
    """Number of trials that came to the rung."""

    def sentence(self, about: Data) -> str:
        return (
            f"The search is over: no trial runs and no new one is wanted. Rank {self.rank} of {self.of} at {self.place},"
            f" {self.shown}, so it was not trained on."
        )


@rule(ExperimentCompleted.TYPE, "nothing_reported")
@dataclass(frozen=True, kw_only=True)
class NothingReported(Numbers):
    """The only trial's script never called the API."""

    def sentence(self, about: Data) -> str:
        return "The trial's script ended by itself, without an error. It called no API, so no metric or checkpoint is recorded."


@rule(ExperimentCompleted.TYPE, "search_over")
@dataclass(frozen=True, kw_only=True)
class SearchOver(Scored):
    """The search is over. `metric` is that of the best trial, if there is one."""

    failed: int
    """Number of trials that failed."""

    def sentence(self, about: Data) -> str:
        best = about["best_trial_id"]
        found = f"trial {best} has the best: {self.shown}" if best else f"{self.metric_name} was never finite, so none is best"
        return f"The search is over: all {about['trials']:,} trials are finished ({self.failed:,} failed), and {found}."
