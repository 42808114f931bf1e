"""The search methods. Each is a pure, stateless set of rules; what it has learned is in the `Experiment`.

A method is a ladder of lengths (rungs), a way to make the n-th trial's hyperparameters, and two rules: what happens to a trial
that reached its rung, and which waiting trial takes a free place. Methods without early stopping have one rung, the full length.
"""

from __future__ import annotations

from typing import Any, Protocol, assert_never

from tenuto.schemas.config import (
    AshaSearcher,
    GridSearcher,
    Hyperparameters,
    RandomSearcher,
    Searcher,
    SingleSearcher,
)
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.services.searcher.methods.asha import Asha
from tenuto.services.searcher.methods.grid import Grid
from tenuto.services.searcher.methods.random import Random
from tenuto.services.searcher.methods.single import Single
from tenuto.services.searcher.state import Experiment, Trial

RULE_VERSION = 1
"""Version of all rules below. A rule that would decide recorded inputs differently is a new version beside the old one, never a
change of it: an experiment is searched to its end by the rules it was started with."""


class Method(Protocol):
    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the rungs, rising; the last is the full length."""
        ...

    @property
    def trials_max(self) -> int: ...

    @property
    def concurrent_trials_max(self) -> int: ...

    @property
    def rung_best_max(self) -> int:
        """How many of a rung's best the rules look at."""
        ...

    @property
    def problem(self) -> str | None:
        """Why this search cannot be started, for the user; None if it can."""
        ...

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]: ...

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped:
        """What becomes of a trial that was compared at its rung just now."""
        ...

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        """The waiting trial that takes a free place, before any new trial does."""
        ...

    def hopeless(self, experiment: Experiment) -> TrialStopped | None:
        """A waiting trial that can never go on, whatever comes."""
        ...

    def last(self, experiment: Experiment) -> TrialExtended | None:
        """The waiting trial that goes on when nothing runs and no new trial is wanted; None: the search is over."""
        ...


class UnknownRules(Exception):
    """The experiment was started by rules that this build does not have."""


def method_for(settings: Searcher, space: Hyperparameters, rule_version: int = RULE_VERSION) -> Method:
    """Raises UnknownRules: deciding by other rules would silently contradict the record."""
    if rule_version != RULE_VERSION:
        raise UnknownRules(
            f"This experiment is searched by rules version {rule_version}, but this searcher knows version {RULE_VERSION} only;"
            " run the searcher of the release that started it, or a newer one."
        )
    match settings:
        case SingleSearcher():
            return Single(settings, space)
        case RandomSearcher():
            return Random(settings, space)
        case GridSearcher():
            return Grid(settings, space)
        case AshaSearcher():
            return Asha(settings, space)
        case _:
            assert_never(settings)
