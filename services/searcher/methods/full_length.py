"""What methods share that train every trial to the full length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tenuto.schemas.config import GridSearcher, Hyperparameters, RandomSearcher, SingleSearcher
from tenuto.schemas.events.search import TrialExtended, TrialStopped
from tenuto.services.searcher.methods.reasons import completed
from tenuto.services.searcher.sampling import sample
from tenuto.services.searcher.state import Experiment, Trial

T = TypeVar("T", SingleSearcher, RandomSearcher, GridSearcher)


@dataclass(frozen=True)
class FullLength(Generic[T]):
    """One rung, the full length: a trial that reached it is complete, and nobody waits."""

    settings: T
    space: Hyperparameters

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.settings.max_length.value,)

    @property
    def rung_best_max(self) -> int:
        return 1

    @property
    def problem(self) -> str | None:
        return None

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        return sample(self.space, seed, trial_number)

    def reached(self, experiment: Experiment, trial: Trial) -> TrialStopped:
        return completed(experiment, trial)

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return None

    def hopeless(self, experiment: Experiment) -> TrialStopped | None:
        return None

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return None
