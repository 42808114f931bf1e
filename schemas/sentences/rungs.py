"""Reasons why a trial goes on, waits or is stopped at a rung: the numbers of the rules that compare trials, with their
sentences."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.amounts import amount
from tenuto.schemas.sentences.rules import Data, rule
from tenuto.schemas.sentences.search import PLUGIN, AtRung, Scored


@dataclass(frozen=True, kw_only=True)
class Compared(AtRung, Scored):
    """A trial is compared with those that came to its rung so far."""

    rank: int | None = None
    """Rank of the trial; the best has 1. None: the rules no longer keep who is that far down (`rank_at_least`)."""
    rank_at_least: int | None = None
    of: int
    """Number of trials that came to the rung."""
    top: int
    """Last rank that goes on."""
    cut_off: float | None
    """Metric of the trial with that rank. None: there is no such trial, or its metric did not decide."""

    @property
    def ranked(self) -> str:
        return f"{self.rank} of {self.of} at {self.place}, {self.shown}"


@dataclass(frozen=True, kw_only=True)
class Halved(Compared):
    divisor: int
    """Divisor of the rung: one trial in this many goes on."""
    ended: int = 0
    """Trials among the best `top` whose own code ended their training: they leave their places to the next best."""

    @property
    def those(self) -> str:
        ended = f", {self.ended} of which ended by {'itself' if self.ended == 1 else 'themselves'}" if self.ended else ""
        return f"the best {self.top}{ended}"

    def trains_on(self, about: Data) -> str:
        return f"so it trains on to {amount(about['target_length'], self.unit)}"


# asha, adaptive_asha, bohb


@rule(TrialExtended.TYPE, "asha.promotion")
@dataclass(frozen=True, kw_only=True)
class Promoted(Halved):
    def sentence(self, about: Data) -> str:
        return f"Rank {self.ranked}: in the top 1/{self.divisor} ({self.those}), {self.trains_on(about)}."


@rule(TrialExtended.TYPE, "asha.go_on")
@dataclass(frozen=True, kw_only=True)
class GoesOn(Halved):
    def sentence(self, about: Data) -> str:
        return f"Rank {self.ranked}: in the top 1/{self.divisor} of those so far ({self.those}), {self.trains_on(about)}."


@rule(TrialExtended.TYPE, "asha.finalist")
@dataclass(frozen=True, kw_only=True)
class Finalist(Halved):
    """The trial trains to the full length without being in the top."""

    def sentence(self, about: Data) -> str:
        return (
            "All trials are compared and none is trained to the full length: the best that waits at the highest rung (rank"
            f" {self.ranked}) trains on to {amount(about['target_length'], self.unit)}."
        )


@rule(TrialPaused.TYPE, "asha.wait")
@dataclass(frozen=True, kw_only=True)
class Waits(Halved):
    first: bool = False
    """True: the trial is the first at its rung, under a rule that stops trials instead of promoting them."""

    def sentence(self, about: Data) -> str:
        return f"Rank {self.ranked}: {self._why()}."

    def _why(self) -> str:
        if self.first:
            return "the first one there, so it waits without slots for another one to be compared with"
        if self.rank is not None and self.rank <= self.top:
            return "its place goes to a trial that is before it, and it goes on at the next free place"
        best = self.those if self.top else "too few to compare"
        return f"not in the top 1/{self.divisor} ({best}) yet, so it waits without slots"


@dataclass(frozen=True, kw_only=True)
class EndedAtRung(Halved):
    @property
    def where(self) -> str:
        """The rung, with the trial's rank as far as it is known."""
        if self.rank is not None:
            return f"Rank {self.ranked}"
        best = (self.rank_at_least or 1) - 1
        return f"Not among the best {best} of {self.of} at {self.place}, {self.shown}"


@rule(TrialStopped.TYPE, "asha.stop")
@dataclass(frozen=True, kw_only=True)
class Stopped(EndedAtRung):
    def sentence(self, about: Data) -> str:
        return f"{self.where}: outside the top 1/{self.divisor} ({self.those}), so it is stopped."


@rule(TrialStopped.TYPE, "asha.no_chance")
@dataclass(frozen=True, kw_only=True)
class NoChance(EndedAtRung):
    """The trial can no longer be promoted: at least `top` trials are ahead of it for good, which is more than can go on."""

    expected: int
    """Number of trials in the bracket, of which at most one in `divisor` can go on."""

    def sentence(self, about: Data) -> str:
        best = self.expected // self.divisor
        known = f", and {self.top} better ones are known" if self.top > best else ""
        return f"{self.where}: of {self.expected:,} trials at most the best {best} can go on{known}, so it is stopped."


# sha, hyperband


@rule(TrialPaused.TYPE, "sha.wait", "hyperband.wait")
@dataclass(frozen=True, kw_only=True)
class WaitsForAll(AtRung, Scored):
    arrived: int
    """Number of trials that have arrived at the rung."""
    of: int
    """Number of trials that will arrive there if none fails before."""

    def sentence(self, about: Data) -> str:
        return (
            f"{self.shown} at {self.place}, where {self.arrived} of {self.of} trials are: it waits without slots until all are."
        )


@rule(TrialExtended.TYPE, "sha.promotion", "hyperband.promotion")
@dataclass(frozen=True, kw_only=True)
class PromotedOfAll(Halved):
    """`top` is the last rank that goes on; it is beyond one in `divisor` if better trials failed while they waited."""

    def sentence(self, about: Data) -> str:
        best = max(1, self.of // self.divisor)
        left = " that are left" if self.rank is not None and self.rank > best else ""
        return (
            f"All {self.of} trials of {self.place} are compared: rank {self.rank}, {self.shown}, is among the best {best}"
            f" (1/{self.divisor}){left}, {self.trains_on(about)}."
        )


@rule(TrialStopped.TYPE, "sha.stop", "hyperband.stop")
@dataclass(frozen=True, kw_only=True)
class StoppedOfAll(Halved):
    expected: int
    """Number of trials that come to the rung, as far as is known."""

    def sentence(self, about: Data) -> str:
        rank = f"Rank {self.rank}" if self.rank is not None else f"Not better than rank {self.rank_at_least}"
        return (
            f"{rank} of the {self.of} trials so far at {self.place}, {self.shown}: of {self.expected} only the best"
            f" {max(1, self.expected // self.divisor)} go on, so it is stopped."
        )


# pbt


@rule(TrialPaused.TYPE, "pbt.wait")
@dataclass(frozen=True, kw_only=True)
class WaitsForGeneration(AtRung, Scored):
    """The trial waits for the end of its generation, which is the rung with the same number."""

    arrived: int
    """Number of trials of the generation that have arrived."""
    of: int
    """Number of trials in the generation."""

    def sentence(self, about: Data) -> str:
        return (
            f"{self.shown} at the end of generation {self.rung} ({amount(self.length, self.unit)}), where {self.arrived} of"
            f" {self.of} trials are: it waits without slots until all are."
        )


@dataclass(frozen=True, kw_only=True)
class OfGeneration(Compared):
    """A trial is compared within its generation. `top`: number of the best that go on."""

    @property
    def among(self) -> str:
        return f"rank {self.rank} of {self.of}, {self.shown},"


@rule(TrialExtended.TYPE, "pbt.go_on")
@dataclass(frozen=True, kw_only=True)
class Survives(OfGeneration):
    def sentence(self, about: Data) -> str:
        return (
            f"Generation {self.rung} is complete: {self.among} is among the best {self.top}, so it trains on to"
            f" {amount(about['target_length'], self.unit)}."
        )


@rule(TrialStopped.TYPE, "pbt.truncate")
@dataclass(frozen=True, kw_only=True)
class Truncated(OfGeneration):
    replaced: int
    """Number of trials that are replaced after each generation."""

    def sentence(self, about: Data) -> str:
        return (
            f"R{self.among[1:]} at the end of generation {self.rung}: among the worst {self.replaced}, so a copy of one of the"
            " best takes its place."
        )


# methods of other packages


@rule(TrialExtended.TYPE, f"{PLUGIN}.said")
@rule(TrialPaused.TYPE, f"{PLUGIN}.said")
@rule(TrialStopped.TYPE, f"{PLUGIN}.said")
@dataclass(frozen=True, kw_only=True)
class Said(AtRung, Scored):
    says: str
    """The method's own clause about its decision: it is recorded, as a reader may not have the package."""

    def sentence(self, about: Data) -> str:
        return f"{self.shown} at {self.place}: {self.says}."
