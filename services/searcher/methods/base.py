"""Interface of search methods, and their common parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from tenuto.schemas.config import Hyperparameters, Searcher
from tenuto.schemas.config.rungs import Bracket
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.ends import Worst
from tenuto.schemas.sentences.search import NewTrial, Requested
from tenuto.services.searcher.methods.reasons import at_rung, completed, scored
from tenuto.services.searcher.methods.sampling import Undrawable, drawn, sample
from tenuto.services.searcher.methods.versions import RULE_VERSION
from tenuto.services.searcher.state import Experiment, Place, Remembers, Trial

T = TypeVar("T", bound=Any)


@dataclass(frozen=True)
class Proposal:
    """The next trial."""

    hyperparameters: dict[str, Any]
    rung: int = 0
    """Index of its first target among the rungs of all brackets."""
    rule: type[Requested] = NewTrial
    """By which it was chosen,"""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """and what that compared, beside what is recorded of every new trial."""
    source_checkpoint_id: str | None = None
    parent: int | None = None
    """Number of the trial that it is a copy of."""
    length: int | None = None
    """Its first target length; None if the method compares at rungs."""
    stopped: bool = False
    """True if it is recorded as stopped before its start, and never runs."""
    key: int | None = None
    """Key of its training seed; None: its number."""


@dataclass(frozen=True)
class Waits:
    """The trial pauses at its rung, unless it goes on or is stopped in the same decision: its reason is made only if it
    stays."""

    trial_id: str
    paused: Callable[[], TrialPaused]


class Method(Protocol):
    @property
    def rule_version(self) -> int: ...

    @property
    def brackets(self) -> tuple[Bracket, ...]: ...

    @property
    def trials_max(self) -> int: ...

    @property
    def concurrent_trials_max(self) -> int: ...

    @property
    def problem(self) -> str | None:
        """Why this search cannot be started, for the user; None if it can."""
        ...

    @property
    def remembers(self) -> Remembers: ...

    @property
    def replaces(self) -> bool:
        """True if another trial takes the place of one whose hyperparameters the model code refused."""
        ...

    @property
    def keeps_places(self) -> bool:
        """True if such a trial is followed by one at the same place (`state.Place`), for the sake of a search that is the same in
        any order of arrival."""
        ...

    @property
    def asks_outside(self) -> bool:
        """New trials are not proposed by these rules, but come from outside."""
        ...

    def awaits(self, experiment: Experiment) -> bool:
        """True if a proposal or operation may still come from outside: then the search is not over although nothing runs."""
        ...

    def best_max(self, trials: int) -> int:
        """Number of best trials that the rules consider at a rung, in a bracket of `trials` trials."""
        ...

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        """The next new trial, for a free place; None: none now. Raises Undrawable where there never will be one."""
        ...

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | Waits:
        """Decision on a trial that was just compared at its rung."""
        ...

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        """The waiting trial that takes a free place, before any new trial does."""
        ...

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        """A trial that waits and can never go on, whatever comes. `rung`: where something changed just now."""
        ...

    def last(self, experiment: Experiment) -> TrialExtended | None:
        """The waiting trial that goes on when nothing runs and no new trial is wanted; None: the search is over."""
        ...


@dataclass(frozen=True)
class Rules(Generic[T]):
    """A method with one rung, the full length, where nobody waits. Others change what they need."""

    settings: T
    space: Hyperparameters
    rule_version: int = RULE_VERSION
    """By which the experiment is searched: see `versions.py`."""

    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        return (Bracket(self.trials_max, (self.settings.max_length.value,)),)

    @property
    def trials_max(self) -> int:
        return int(self.settings.max_trials)

    @property
    def concurrent_trials_max(self) -> int:
        return int(self.settings.max_concurrent_trials)

    @property
    def problem(self) -> str | None:
        return unsatisfiable(self.settings, self.space)

    @property
    def remembers(self) -> Remembers:
        return "nothing"

    @property
    def replaces(self) -> bool:
        return True

    @property
    def keeps_places(self) -> bool:
        return False

    @property
    def asks_outside(self) -> bool:
        return False

    def awaits(self, experiment: Experiment) -> bool:
        return self.asks_outside and experiment.wants_trials

    def best_max(self, trials: int) -> int:
        return 1

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        """Hyperparameters of a trial, which depend on its number alone. Raises Undrawable where no draw keeps the constraints."""
        settings, space = self.settings, self.space
        if not settings.constraints and trial_number > len(settings.starting_points):
            return sample(space, seed, trial_number)
        return drawn(settings, space, seed, trial_number, lambda attempt: sample(space, seed, trial_number, attempt))

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        return Proposal(self.hyperparameters(experiment.seed, experiment.requested + 1))

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | Waits:
        return completed(experiment, trial)

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return None

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        return None

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return None

    def again(self, experiment: Experiment, place: Place) -> Proposal:
        """Another trial at a place, in a search that keeps places."""
        hyperparameters = self.hyperparameters(experiment.seed, place.key)
        return Proposal(hyperparameters, place.rung, numbers={"replaces": place.refused}, key=place.key)

    # -- for methods with rungs

    def worst(self, experiment: Experiment, trial: Trial) -> TrialStopped:
        came = experiment.rungs[trial.rung].size
        why = Worst(**scored(experiment, None), **at_rung(experiment, trial.rung), rank=came, of=came)
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            outcome="early_stopped",
            reason=why.reason(f"{self.settings.name}.worst"),
        )


def unsatisfiable(settings: Searcher, space: Hyperparameters) -> str | None:
    """Why no trial can be drawn at all; None: one can."""
    number = len(settings.starting_points) + 1
    try:
        drawn(settings, space, 0, number, lambda attempt: sample(space, 0, number, attempt))
    except Undrawable:
        return (
            "No configuration that was drawn keeps searcher.constraints; loosen them, or narrow the ranges of the hyperparameters"
            " that they name."
        )
    except Exception as error:
        # What a configuration may say is checked when it is submitted. What was overlooked there ends this experiment, not the
        # search of all others.
        return f"No hyperparameters can be drawn from this search space ({type(error).__name__}: {error}); change its ranges."
    return None
