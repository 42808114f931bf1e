"""What the searcher knows: the experiments that are not over, and of them the trials that are not finished."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from immutables import Map

from tenuto.schemas import ids
from tenuto.schemas.config import Hyperparameters, Searcher
from tenuto.services.searcher.ranking import Key, Rung

TrialStatus = Literal["running", "reported", "failing", "paused", "stopped"]
"""running: has a target and trains, or waits for slots. reported: reached its target, not decided yet. failing: gave up, not
decided yet. paused: waits at its rung without slots. stopped: gets no more budget; its workers may still be leaving.
A finished trial (no worker runs any more) is no longer in the state."""
_ACTIVE = frozenset({"running", "reported", "failing"})

METRIC_NAMES_MAX = 20
"""Names of reported metrics that are kept for an error message: enough to find the right one."""
ERROR_CHARACTERS_MAX = 2_000
"""Of the last error, for the same purpose."""
FAILURES_AT_START_MAX = 8
"""So many trials may be given up before any validation came; then no new trial is asked for, because the code is broken rather
than a configuration unlucky. One validation of a trial still running lets the search go on."""


@dataclass(frozen=True)
class Trial:
    number: int
    rung: int
    """Index of the rung that it trains towards or has reached; its target is the rung's length."""
    status: TrialStatus
    score: float | None = None
    """Its metric at the last rung it reached, signed so that smaller is better. None: not reached, missing or not finite."""

    @property
    def key(self) -> Key | None:
        return None if self.score is None else (self.score, self.number)

    @property
    def active(self) -> bool:
        return self.status in _ACTIVE


@dataclass(frozen=True)
class Experiment:
    id: int
    seed: int
    settings: Searcher
    space: Hyperparameters
    lengths: tuple[int, ...]
    """Lengths of the rungs, rising; the last is the full length. Methods without rungs have this one only."""
    trials_max: int
    concurrent_trials_max: int
    rungs: tuple[Rung, ...]
    rule_version: int = 0
    """0 until ExperimentStarted says by which rules it is searched."""
    trials: Map[int, Trial] = Map()  # noqa: RUF009 (a persistent map cannot be changed by its sharers)
    requested: int = 0
    active: int = 0
    paused: int = 0
    failed: int = 0
    validated: bool = False
    """A validation was reported, whatever it held."""
    metric_seen: bool = False
    """The searcher's metric was among the reported ones, whatever its value."""
    metric_names: tuple[str, ...] = ()
    best_trial: int | None = None
    best_score: float | None = None
    canceling: bool = False
    last_error: str = ""

    @property
    def metric(self) -> str:
        return self.settings.metric

    @property
    def unit(self) -> str:
        return self.settings.max_length.unit

    @property
    def top(self) -> int:
        return len(self.lengths) - 1

    @property
    def wants_trials(self) -> bool:
        """Whether new trials may still be asked for."""
        broken = self.failed >= FAILURES_AT_START_MAX and not self.validated
        return self.requested < self.trials_max and not self.canceling and not broken

    def trial_id(self, number: int) -> str:
        return ids.trial_id(self.id, number)

    def score_of(self, metrics: dict[str, float]) -> float | None:
        """The signed metric; None where it is missing or not finite."""
        value = metrics.get(self.metric)
        if value is None or not isfinite(value):
            return None
        return self.value_of(value)

    def value_of(self, score: float) -> float:
        """Between metric and score: the same both ways. Adding zero turns -0.0 into 0.0, so that equal scores print equally."""
        return (score if self.settings.smaller_is_better else -score) + 0.0

    def changed(self, **fields: Any) -> Experiment:
        """As `dataclasses.replace`, at a fifth of its cost: this is most of what folding an event does."""
        copy = object.__new__(Experiment)
        copy.__dict__.update(self.__dict__, **fields)
        return copy

    def with_trial(self, trial: Trial, **changes: Any) -> Experiment:
        """With this trial as it is now, and the counts that follow from its status."""
        before = self.trials.get(trial.number)
        return self.changed(
            trials=self.trials.set(trial.number, trial),
            active=self.active + trial.active - (before is not None and before.active),
            paused=self.paused + (trial.status == "paused") - (before is not None and before.status == "paused"),
            **changes,
        )

    def with_rung(self, index: int, rung: Rung) -> tuple[Rung, ...]:
        return (*self.rungs[:index], rung, *self.rungs[index + 1 :])


@dataclass(frozen=True)
class SearcherState:
    experiments: Map[int, Experiment] = Map()  # noqa: RUF009


def initial() -> SearcherState:
    return SearcherState()


def check(state: SearcherState) -> None:
    """Asserts what always holds; raises AssertionError."""
    for _, experiment in sorted(state.experiments.items()):
        _check_experiment(experiment)


def _check_experiment(experiment: Experiment) -> None:
    trials = [trial for _, trial in sorted(experiment.trials.items())]
    assert experiment.active == sum(trial.active for trial in trials), "the count of active trials is wrong"
    assert experiment.paused == sum(trial.status == "paused" for trial in trials), "the count of paused trials is wrong"
    assert experiment.active <= experiment.concurrent_trials_max, "more trials than allowed at once"
    assert experiment.requested <= experiment.trials_max, "more trials than allowed"
    assert list(experiment.lengths) == sorted(set(experiment.lengths)), "rung lengths do not rise"
    assert len(experiment.rungs) == len(experiment.lengths)
    waiting: set[int] = set()
    for index, rung in enumerate(experiment.rungs):
        assert len(rung.best) <= min(rung.size, rung.best_max), "a rung keeps more than it may"
        assert rung.size <= experiment.requested, "more trials at a rung than there are"
        for ranking in (rung.best, rung.waiting):
            keys = list(ranking)
            assert keys == sorted(set(keys)), "a ranking is not sorted"
            assert len(keys) == len(ranking)
        for key in rung.waiting:
            trial = experiment.trials[key[1]]
            assert (trial.status, trial.rung, trial.key) == ("paused", index, key), f"{trial} waits where it is not"
            waiting.add(trial.number)
    assert len(waiting) == experiment.paused, "a paused trial waits at no rung"
    assert all(1 <= trial.number <= experiment.requested for trial in trials)
    assert (experiment.best_trial is None) == (experiment.best_score is None)
