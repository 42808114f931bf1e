"""How a trial ends, and a search, whatever the method is; and what a user's own search makes of its trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.amounts import amount, times
from tenuto.schemas.sentences.rules import Data, Numbers, rule
from tenuto.schemas.sentences.search import METHODS_COMPARED, Asked, AtRung, Scored

# A user's own search.


@rule(TrialExtended.TYPE, "custom.extend")
@dataclass(frozen=True, kw_only=True)
class CustomExtended(Asked):
    length: int
    """To which it trains on, in `unit`."""
    unit: Unit = "batches"

    def sentence(self, about: Data) -> str:
        return f"{self.asked}: it trains on to {amount(self.length, self.unit)}."


@rule(TrialPaused.TYPE, "custom.wait")
@dataclass(frozen=True, kw_only=True)
class CustomWaits(Scored):
    length: int
    """Its target, which it has reached, in `unit`."""
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
    """Its target, in the search's unit."""

    def sentence(self, about: Data) -> str:
        return "The search's own class ended the search."


# How a trial ends whatever its method is.


@rule(TrialStopped.TYPE, "full_length")
@dataclass(frozen=True, kw_only=True)
class FullLength(Scored):
    length: int
    """In `unit`."""
    unit: Unit = "batches"
    rung: int | None = None
    """The last of its bracket. None: the method has no rungs."""
    bracket: int | None = None

    def sentence(self, about: Data) -> str:
        return f"Trained to the full length of {amount(self.length, self.unit)}: {self.shown}."


@rule(TrialStopped.TYPE, *(f"{method}.worst" for method in METHODS_COMPARED))
@dataclass(frozen=True, kw_only=True)
class Worst(AtRung, Scored):
    """It has no metric to be compared by."""

    rank: int
    """The last there is,"""
    of: int
    """as so many trials came to the rung."""

    def sentence(self, about: Data) -> str:
        return f"{self.shown} at {self.place}: it counts as worst of {self.of} and is stopped."


@rule(TrialStopped.TYPE, "failed")
@dataclass(frozen=True, kw_only=True)
class Failed(Numbers):
    failures: int
    """Of the trial, in all."""
    length: int
    """Its target, in `unit`."""
    unit: Unit = "batches"
    rung: int | None = None
    """None: the method has no rungs."""
    bracket: int | None = None
    of: int | None = None
    """Trials that came to the rung, this one included."""
    waited: bool = False
    """It had reached the rung and waited there."""

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
class InvalidHyperparameters(Numbers):
    """The model code refused them (`tenuto.InvalidHyperparameters`)."""

    error: str
    """First line of what the code said."""
    then: Literal["replaced", "counts_not", "point_done"]
    """What follows: another trial takes its place; none does; or this point of the grid is done."""
    rung: int
    length: int
    """Its target, in the search's unit."""
    invalid: int
    """Trials of the search that were refused so far, and do not count."""

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
    """Of that rung, in the search's unit."""

    def sentence(self, about: Data) -> str:
        return "The experiment is canceled."


@rule(TrialStopped.TYPE, "search_over")
@dataclass(frozen=True, kw_only=True)
class Outlived(AtRung, Scored):
    """It waited, and nobody else runs any more."""

    rank: int
    """The best has 1."""
    of: int
    """Trials that came to the rung."""

    def sentence(self, about: Data) -> str:
        return (
            f"The search is over: no trial runs and no new one is wanted. Rank {self.rank} of {self.of} at {self.place},"
            f" {self.shown}, so it was not trained on."
        )


@rule(ExperimentCompleted.TYPE, "search_over")
@dataclass(frozen=True, kw_only=True)
class SearchOver(Scored):
    """`metric` is the best trial's, if there is one."""

    failed: int
    """Trials that failed, of all."""

    def sentence(self, about: Data) -> str:
        best = about["best_trial_id"]
        found = f"trial {best} has the best: {self.shown}" if best else f"{self.metric_name} was never finite, so none is best"
        return f"The search is over: all {about['trials']:,} trials are finished ({self.failed:,} failed), and {found}."
