"""Interface of search methods, and their common parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from tenuto.schemas.base import Model
from tenuto.schemas.config import Hyperparameters, PluginSearcher, Searcher
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import PluginMethod, TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.ends import Worst
from tenuto.schemas.sentences.rungs import Said
from tenuto.schemas.sentences.search import Chosen, NewTrial, Requested
from tenuto.services.searcher.methods.reasons import at_rung, completed, scored
from tenuto.services.searcher.methods.sampling import Undrawable, drawn, sample
from tenuto.services.searcher.methods.versions import RULE_VERSION
from tenuto.services.searcher.state import Experiment, PlanPoint, Remembers, Trial

T = TypeVar("T", bound=Any)
S = TypeVar("S", bound=BaseModel)
SAID_CHARACTERS_MAX = 300
"""Most characters of what a method of another package says of a decision."""


@dataclass(frozen=True)
class Proposal:
    """The next trial."""

    hyperparameters: dict[str, Any]
    rung: int = 0
    """Index of its first target among the rungs of all brackets."""
    rule: type[Requested] = NewTrial
    """Rule that chose the trial."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Values that the rule compared, beside those that are recorded of every new trial."""
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
class PauseAtRung:
    """The trial pauses at its rung, unless it goes on or is stopped in the same decision: its reason is made only if it
    stays."""

    trial_id: str
    paused: Callable[[], TrialPaused]


class Method(Protocol):
    @property
    def rule_version(self) -> int: ...

    @property
    def plugin(self) -> PluginMethod | None:
        """Package and plan of a method of another package, to be recorded at the start; None for Tenuto's own."""
        ...

    @property
    def brackets(self) -> tuple[Bracket, ...]: ...

    @property
    def trials_max(self) -> int: ...

    @property
    def concurrent_trials_max(self) -> int: ...

    @property
    def problem(self) -> str | None:
        """Reason why this search cannot be started, for the user; None if it can."""
        ...

    @property
    def remembers(self) -> Remembers: ...

    @property
    def replaces(self) -> bool:
        """True if another trial takes the place of one whose hyperparameters the model code refused."""
        ...

    @property
    def keeps_places(self) -> bool:
        """True if such a trial is followed by one at the same place (`state.PlanPoint`), for the sake of a search that is the
        same in any order of arrival."""
        ...

    @property
    def asks_outside(self) -> bool:
        """New trials are not proposed by these rules, but come from outside."""
        ...

    @property
    def exact(self) -> bool:
        """True if as many trials come to each rung as the plan of the search says, whatever the order of arrival."""
        ...

    @property
    def replaced(self) -> int:
        """Number of trials that copies replace at each rung below the full length."""
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

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | PauseAtRung:
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
    """Method with one rung, the full length, where no trial waits. Others change what they need."""

    settings: T
    space: Hyperparameters
    rule_version: int = RULE_VERSION
    """Version of the rules by which the experiment is searched: see `versions.py`."""

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
    def plugin(self) -> PluginMethod | None:
        return None

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

    @property
    def exact(self) -> bool:
        return True

    @property
    def replaced(self) -> int:
        return 0

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

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | PauseAtRung:
        return completed(experiment, trial)

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return None

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        return None

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return None

    def again(self, experiment: Experiment, place: PlanPoint) -> Proposal:
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
            reason=why.reason(f"{experiment.rules}.worst"),
        )


@dataclass(frozen=True)
class PluginRules(Rules[PluginSearcher], Generic[S]):
    """A method of another package: derive a class, and declare it as an entry point of `tenuto.search_methods`. Decisions are
    pure: they follow from the arguments alone, and what is drawn comes from `sampling.py`, or a replay finds another search."""

    SETTINGS: ClassVar[type[BaseModel]] = Model
    """Model of `searcher.settings`."""
    VERSIONS: ClassVar[tuple[str, ...]] = ()
    """Versions of the rules that this class decides by, as asked in `rules`; searches that start now get the last. Empty: the
    version of the package, so that no other one goes on with a search or replays it."""

    package: str = ""
    version: str = ""
    """Version of the package that is installed."""
    rules: str = ""
    """Version of the rules by which the experiment is searched."""

    @cached_property
    def own(self) -> S:
        """Settings of the method, from `searcher.settings`."""
        found: Any = self.SETTINGS.model_validate(self.settings.settings)
        return found  # type: ignore[no-any-return]

    @property
    def exact(self) -> bool:
        return len(self.brackets[0].lengths) == 1

    @property
    def plugin(self) -> PluginMethod:
        return PluginMethod(
            package=self.package,
            version=self.version,
            rules=self.rules,
            trials_max=self.trials_max,
            brackets=self.brackets,
            best_max=tuple(self.best_max(bracket.trials) for bracket in self.brackets),
            remembers=self.remembers,
            replaces=self.replaces,
            keeps_places=self.keeps_places,
        )

    # -- decisions with a sentence, which is recorded: who reads it later need not have the package

    def chosen(self, hyperparameters: dict[str, Any], says: str, rung: int = 0) -> Proposal:
        """A new trial. `says`: how it was chosen, such as "its hyperparameters are point 3 of a lattice"."""
        return Proposal(hyperparameters, rung, rule=Chosen, numbers={"says": _short(says)})

    def extended(self, experiment: Experiment, trial: Trial, says: str) -> TrialExtended:
        """The trial trains on to the next rung. `says`: why, as a clause without a full stop."""
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            target_length=experiment.lengths[trial.rung + 1],
            reason=self._said(experiment, trial, says),
        )

    def paused(self, experiment: Experiment, trial: Trial, says: str) -> TrialPaused:
        return TrialPaused(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            reason=self._said(experiment, trial, says),
        )

    def stopped(self, experiment: Experiment, trial: Trial, says: str) -> TrialStopped:
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            outcome="early_stopped",
            reason=self._said(experiment, trial, says),
        )

    def _said(self, experiment: Experiment, trial: Trial, says: str) -> Reason:
        return Said(**scored(experiment, trial.score), **at_rung(experiment, trial.rung), says=_short(says)).reason()


def _short(says: str) -> str:
    return says.split("\n", 1)[0][:SAID_CHARACTERS_MAX].rstrip(" .")


def unsatisfiable(settings: Searcher, space: Hyperparameters) -> str | None:
    """Reason why no trial can be drawn at all; None if one can."""
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
