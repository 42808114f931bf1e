"""State of the searcher: the experiments that are not over, and their unfinished trials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from immutables import Map

from tenuto.kernel.codec import DERIVED
from tenuto.schemas import ids
from tenuto.schemas.config import PluginSearcher, Searcher
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import PluginMethod
from tenuto.schemas.metrics import usable
from tenuto.schemas.record import TrialSource
from tenuto.schemas.sentences.search import PLUGIN
from tenuto.services.searcher.state.custom_operations import WaitingOperation
from tenuto.services.searcher.state.ladder import flat_lengths, last_rungs, promotion_order
from tenuto.services.searcher.state.ranking import Key, Rung
from tenuto.services.searcher.state.records import copied
from tenuto.services.searcher.state.space import Space

TrialStatus = Literal["running", "reported", "ended", "failing", "invalid", "paused", "stopped"]
"""running: has a target and trains, or waits for slots. reported: reached its target, not decided yet. ended: its own code ended
its training, not decided yet. failing: gave up, not decided yet. invalid: its model code refused the hyperparameters, not
decided yet. paused: waits at its rung without slots. stopped: gets no more budget; its workers may still be leaving. A finished
trial (no worker runs any more) is no longer in the state."""
_ACTIVE = frozenset({"running", "reported", "ended", "failing", "invalid"})
Remembers = Literal["nothing", "living", "all"]
"""Trials whose hyperparameters a method looks at later: none, those that are not finished, or all."""

METRIC_NAMES_MAX = 20
"""Most names of reported metrics that are kept for an error message: enough to find the right one."""
ERROR_CHARACTERS_MAX = 2_000
"""Most characters of the last error that are kept for an error message."""
FAILURES_AT_START_MAX = 8
"""Number of trials given up before any validation after which no new trial is asked for, because the code is broken rather than a
configuration unlucky. One validation of a trial still running lets the search go on."""
INVALID_MAX = 100
"""Most trials that are replaced because the model code refused their hyperparameters, or the most trials of the search if that is
more. Further ones count as failed: the space has next to nothing that the code accepts."""


PLACE_TRIES = 1_000_000
"""Distance between the keys of two draws for one place: more than an experiment may have trials."""


@dataclass(frozen=True)
class PlanPoint:
    """Place of a trial in a search that must be the same in any order of arrival. A trial whose hyperparameters are refused is
    followed by another one at the same place, and all draws depend on the place instead of the trial's number."""

    number: int
    """Number of the place. Places are numbered in the order in which they were first filled, so it equals the trial's number if
    no trial was replaced."""
    rung: int
    tries: int = 0
    """Trials that were refused here."""
    refused: int | None = None
    """Number of the last one of them."""
    parent: int | None = None
    """Trial that this one is a copy of, until the copy is compared with others; None: it is no such copy."""
    checkpoint_id: str | None = None
    """Checkpoint that the copy begins from."""
    hyperparameters: str | None = None
    """Hyperparameters of the parent, as JSON."""

    @property
    def key(self) -> int:
        """Number that replaces the trial's number in what is drawn for it."""
        return self.number + self.tries * PLACE_TRIES


@dataclass(frozen=True)
class Validated:
    """A validation, signed so that smaller is better."""

    batches: int
    score: float | None
    """The searcher's metric. None: missing or not finite."""
    scores: tuple[float, ...] | None = None
    """All scores, in a search with several metrics; None if the validation lacked one, or the search has one metric."""


@dataclass(frozen=True)
class Trial:
    number: int
    rung: int
    """Index of the rung that it trains towards or has reached, among those of all brackets; its target is the rung's length."""
    status: TrialStatus
    score: float | None = None
    """Its metric at the last rung it reached, signed so that smaller is better. None: not reached, missing or not finite."""
    checkpoint_id: str | None = None
    """Id of its newest checkpoint, if the method copies trials."""
    own_target: int | None = None
    """The length that it trains to, where the method has no rungs (custom)."""
    place: PlanPoint | None = None
    """Its place, if the method keeps places: set until the trial goes on, where number and rung do not determine it."""
    recent: tuple[tuple[int, float], ...] = ()
    """Its last validations on the way to its target, as (batches, score), if validations are averaged."""
    last: Validated | None = None
    """Its last validation, by which it counts if its own code ends its training. None: it has none."""
    passed: int = 0
    """Rungs below its own at which its last validation counted, too, because it was further than it was asked to be."""

    def changed(self, **fields: Any) -> Trial:
        return copied(self, fields)

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
    space: Space
    brackets: tuple[Bracket, ...]
    trials_max: int
    concurrent_trials_max: int
    rungs: tuple[Rung, ...]
    lengths: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Lengths of the rungs of all brackets, one bracket after the other; in each they rise to the full length. Methods without
    rungs have this one only."""
    lasts: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Index of the last rung of its bracket, for each rung."""
    order: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Rungs below the full length, the longest first: the order in which trials that wait there are considered."""
    remembers: Remembers = "nothing"
    replaces: bool = True
    """True if another trial takes the place of one whose hyperparameters the model code refused."""
    keeps_places: bool = False
    """True if that is the same `PlanPoint`, not only the next number."""
    earlier: Map[int, TrialSource] = Map()  # noqa: RUF009
    """Records of what trials reached in the experiment that this one goes on with, by trial number. A trial that is asked for has
    one only if it is the same trial."""
    vacant: tuple[PlanPoint, ...] = ()
    """Places that wait for another trial; they are filled before any new one."""
    replacements: int = 0
    """Trials that filled a place again."""
    trials_ceiling: int = 0
    concurrent_ceiling: int = 0
    """The largest trials_max and concurrent_trials_max there ever were: what runs already is not stopped by a lower one."""
    rule_version: int = 0
    """0 until ExperimentStarted says by which rules it is searched."""
    plugin: PluginMethod | None = None
    """Package and plan of its method, as ExperimentStarted says; None for one of Tenuto's own."""
    trials: Map[int, Trial] = Map()  # noqa: RUF009 (a persistent map cannot be changed by its sharers)
    requested: int = 0
    active: int = 0
    paused: int = 0
    failed: int = 0
    invalid: int = 0
    """Trials that were replaced because the model code refused their hyperparameters: they count for no limit."""
    memory: Map[int, str] = Map()  # noqa: RUF009
    """Hyperparameters by trial number, as JSON, of those that the method remembers."""
    objectives: Map[int, tuple[float, ...]] = Map()  # noqa: RUF009
    """All scores of each trial that has them, by trial number, in a search with several metrics."""
    validated: bool = False
    """True once a validation was reported, whatever it held."""
    metric_seen: bool = False
    """True once the searcher's metric was among the reported ones, whatever its value."""
    metric_names: tuple[str, ...] = ()
    best_trial: int | None = None
    best_score: float | None = None
    canceling: bool = False
    last_error: str = ""
    creations: tuple[WaitingOperation, ...] = ()
    """custom: new trials that wait for a free place, in the order in which they were asked for."""
    extensions: tuple[tuple[int, WaitingOperation], ...] = ()
    """custom: by trial number, trials that are to go on and wait for a free place."""
    ending: str | None = None
    """Set when the search is ended from outside the method's rules; the error, or nothing where it is complete. custom: by the
    class. A method of another package: its rules are lost."""
    silent: bool = False
    """single: the trial's script ended by itself, and had never called the API."""

    @property
    def metric(self) -> str:
        return self.settings.metric

    @property
    def rules(self) -> str:
        """First word of the names of the method's rules."""
        return PLUGIN if isinstance(self.settings, PluginSearcher) else self.settings.name

    @property
    def unit(self) -> Unit:
        return self.settings.max_length.unit

    @property
    def averaged(self) -> int:
        """Validations of which the mean is compared below the full length, at most."""
        return int(getattr(self.settings, "average_validations", 1))

    def is_top(self, rung: int) -> bool:
        """True for the last rung of its bracket, the full length."""
        return self.lasts[rung] == rung

    def first(self, bracket: int) -> int:
        """Index of the bracket's first rung."""
        return sum(len(item.lengths) for item in self.brackets[:bracket]) if bracket else 0

    def bracket_of(self, rung: int) -> int:
        before = len(self.brackets[0].lengths)
        if rung < before:
            return 0
        before = 0
        for index, bracket in enumerate(self.brackets):
            before += len(bracket.lengths)
            if rung < before:
                return index
        raise IndexError(rung)

    def rung_of(self, bracket: int, target_length: int) -> int:
        """Index of the bracket's rung with this length."""
        return self.lengths.index(target_length, self.first(bracket))

    def target(self, trial: Trial) -> int:
        """The length that the trial trains to."""
        return self.lengths[trial.rung] if trial.own_target is None else trial.own_target

    @property
    def counted(self) -> int:
        """Trials that were asked for and not taken back."""
        return self.requested - self.invalid

    @property
    def next_place(self) -> int:
        """The number of the next new place."""
        return self.requested + 1 - self.replacements

    @property
    def wants_trials(self) -> bool:
        """True if new trials may still be asked for."""
        broken = self.failed >= FAILURES_AT_START_MAX and not self.validated
        return self.counted < self.trials_max and not self.canceling and not broken

    def trial_id(self, number: int) -> str:
        return ids.trial_id(self.id, number)

    def score_of(self, metrics: dict[str, float]) -> float | None:
        """The signed metric; None where it is missing or not finite."""
        value = metrics.get(self.metric)
        return self.value_of(value) if usable(value) else None

    def value_of(self, score: float) -> float:
        """Score of a metric, or metric of a score: the conversion is the same both ways. Adding zero turns -0.0 into 0.0, so that
        equal scores print equally."""
        return (score if self.settings.smaller_is_better else -score) + 0.0

    def scores_of(self, metrics: dict[str, float]) -> tuple[float, ...] | None:
        """All signed metrics of a search with several, the searcher's own first; None if one is missing or not finite, or the
        search has one metric."""
        goals = self.settings.goals
        if not goals:
            return None
        values = [(metrics.get(name), smaller) for name, smaller in goals]
        scores = tuple((value if smaller else -value) + 0.0 for value, smaller in values if usable(value))
        return scores if len(scores) == len(goals) else None

    def changed(self, **fields: Any) -> Experiment:
        return copied(self, fields)

    def with_trial(self, before: Trial | None, trial: Trial, **changes: Any) -> Experiment:
        """Experiment with this trial as it is now, and the counts that follow from its status; `before` is the trial as it
        was."""
        changes["trials"] = self.trials.set(trial.number, trial)
        was, now = None if before is None else before.status, trial.status
        if was != now:
            changes["active"] = self.active + (now in _ACTIVE) - (was in _ACTIVE)
            changes["paused"] = self.paused + (now == "paused") - (was == "paused")
        return copied(self, changes)

    def with_rung(self, index: int, rung: Rung) -> tuple[Rung, ...]:
        return (*self.rungs[:index], rung, *self.rungs[index + 1 :])


@dataclass(frozen=True)
class SearcherState:
    experiments: Map[int, Experiment] = Map()  # noqa: RUF009


def initial() -> SearcherState:
    return SearcherState()


def derive(state: SearcherState) -> SearcherState:
    """State with the fields that follow from the brackets of each experiment."""
    experiments = [state.experiments[key] for key in sorted(state.experiments)]
    return SearcherState(Map({item.id: item.changed(**along(item.brackets)) for item in experiments}))


def along(brackets: tuple[Bracket, ...]) -> dict[str, tuple[int, ...]]:
    """Fields of an experiment with these brackets."""
    return {"lengths": flat_lengths(brackets), "lasts": last_rungs(brackets), "order": promotion_order(brackets)}


def check(state: SearcherState) -> None:
    """Asserts what always holds; raises AssertionError."""
    for _, experiment in sorted(state.experiments.items()):
        _check_experiment(experiment)


def _check_experiment(experiment: Experiment) -> None:
    trials = [trial for _, trial in sorted(experiment.trials.items())]
    assert experiment.active == sum(trial.active for trial in trials), "the count of active trials is wrong"
    assert experiment.paused == sum(trial.status == "paused" for trial in trials), "the count of paused trials is wrong"
    assert experiment.active <= experiment.concurrent_ceiling, "more trials than allowed at once"
    assert experiment.counted <= experiment.trials_ceiling, "more trials than allowed"
    for bracket in experiment.brackets:
        assert list(bracket.lengths) == sorted(set(bracket.lengths)), "rung lengths do not rise"
    assert experiment.lengths == tuple(length for bracket in experiment.brackets for length in bracket.lengths)
    assert len(experiment.rungs) == len(experiment.lengths) == len(experiment.lasts)
    assert sum(rung.started for rung in experiment.rungs) == experiment.counted, "a trial started at no rung"
    waiting: set[int] = set()
    for index, rung in enumerate(experiment.rungs):
        assert len(rung.best) <= min(rung.size, rung.best_max), "a rung keeps more than it may"
        assert rung.size <= rung.entered <= experiment.requested, "more trials at a rung than were sent there"
        for ranking in (rung.best, rung.waiting):
            keys = list(ranking)
            assert keys == sorted(set(keys)), "a ranking is not sorted"
            assert len(keys) == len(ranking)
        for key in rung.waiting:
            trial = experiment.trials[key[1]]
            assert (trial.status, trial.rung, trial.key) == ("paused", index, key), f"{trial} waits where it is not"
            assert key not in rung.ended, f"{trial} waits, and its training has ended"
            waiting.add(trial.number)
    assert experiment.keeps_places or not (experiment.vacant or experiment.replacements), "a place is vacant where none is kept"
    if experiment.settings.DECIDED_OUTSIDE:
        paused = {trial.number for trial in trials if trial.status == "paused"}
        due = [number for number, _ in experiment.extensions]
        assert not waiting, "a trial of a custom search waits at a rung"
        assert paused.issuperset(due), "a trial that is to go on does not wait"
        assert len(due) == len(set(due)), "a trial is to go on twice"
        assert all(trial.own_target is not None for trial in trials), "a trial of a custom search has no target"
    else:
        assert len(waiting) == experiment.paused, "a paused trial waits at no rung"
    assert all(1 <= trial.number <= experiment.requested for trial in trials)
    assert (experiment.best_trial is None) == (experiment.best_score is None)
