"""A search of your own: a class that is told the events of its experiment and decides what to do next. docs/search.md says how to
run it.

    from tenuto.search import Complete, Create, CustomSearcher, Extend, Stop

    class Mine(CustomSearcher):
        def on_start(self):
            return [Create(length=1) for _ in range(8)]

The class must be a function of these events: run again from the start of the record it has to decide the same. So it must not use
a clock, global random numbers (`self.search.random` is seeded from the experiment), or files that change.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tenuto.schemas.config import CustomSearcher as _Settings
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentSubmitted, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import ExperimentStarted, TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.operations import Complete, Create, Extend, Fail, Operation, Stop

TrialState = Literal["running", "waiting", "stopped", "finished"]


@dataclass
class Trial:
    """One configuration. Read it; do not change it."""

    number: int
    """Number of the trial in its experiment, from 1."""
    hyperparameters: dict[str, Any]
    """Values of the trial by name; a group is a dict."""
    target: int
    """Length that the trial trains to, in the unit of `searcher.max_length`."""
    state: TrialState = "running"
    """running: the trial trains, or waits for slots. waiting: it reached its target. stopped: it gets no more budget.
    finished: it was stopped, and none of its workers runs any more."""
    outcome: str | None = None
    """completed, early_stopped, failed or canceled; None until the trial is stopped."""
    length: int = 0
    """Length at the trial's last validation."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last validation; NaN and infinities are kept."""
    checkpoint_id: str | None = None
    """Newest checkpoint of the trial, from which another trial can begin."""
    parent: int | None = None
    """Number of the trial that this one is a copy of; None: of none."""
    ended: str | None = None
    """Reason for which the trial's own code ended its training, such as early stopping; may be empty. It is completed, and
    counts by its last validation for every length. None: it has not."""

    @property
    def at_target(self) -> bool:
        """True if the trial has reached its target, or ended by itself on the way: it gets no further."""
        return self.length >= self.target or self.ended is not None

    @property
    def busy(self) -> bool:
        """True while the trial runs and has not reached its target."""
        return self.state == "running" and not self.at_target


class Known:
    """A searcher's knowledge of its experiment: `self.search`."""

    def __init__(self, submitted: ExperimentSubmitted) -> None:
        config = submitted.config
        assert isinstance(config.searcher, _Settings)
        self.config: ExperimentConfig = config
        """The whole configuration of the experiment."""
        self.settings: dict[str, Any] = config.searcher.settings
        """`searcher.settings` of the configuration."""
        self.seed = submitted.seed
        """Seed of the experiment."""
        self.random = random.Random(f"tenuto.search/{submitted.seed}")
        """Random numbers of this search: use no others."""
        self.metric = config.searcher.metric
        """Name of the validation metric to compare: `searcher.metric`."""
        self.smaller_is_better = config.searcher.smaller_is_better
        """True if a smaller metric is better: `searcher.smaller_is_better`."""
        self.max_length = config.searcher.max_length.value
        """Longest training of a trial: `searcher.max_length`, in its own unit."""
        self.max_trials = config.searcher.max_trials
        """Most trials: `searcher.max_trials`, as the user last changed it."""
        self.max_concurrent_trials = config.searcher.max_concurrent_trials
        """Most trials at once: `searcher.max_concurrent_trials`, as the user last changed it."""
        self.trials: dict[int, Trial] = {}
        """Trials by number; the n-th Create is trial n, and is here from its start on."""

    def score(self, metrics: Mapping[str, float]) -> float:
        """The searcher's metric among `metrics` (by name), signed so that smaller is better; infinite if it is missing or not
        finite."""
        value = metrics.get(self.metric)
        if value is None or not math.isfinite(value):
            return math.inf
        return value if self.smaller_is_better else -value

    def draw(self, number: int) -> dict[str, Any]:
        """Hyperparameters that the trial with this `number` (from 1) gets if its Create gives none: a draw from the search
        space."""
        from tenuto.services.searcher.methods.sampling import sample

        return sample(self.config.hyperparameters, self.seed, number)


class CustomSearcher:
    """Base class of your search. Override the methods that you need. Each returns operations, or nothing. `search`: what it knows
    of its experiment; `__init__` keeps it as `self.search`.

        from tenuto.search import Complete, Create, CustomSearcher

        class Eight(CustomSearcher):
            def on_start(self):
                return [Create(length=self.search.max_length) for _ in range(8)]

            def on_validation(self, trial):
                trials = self.search.trials.values()
                return [Complete()] if len(trials) == 8 and all(one.at_target for one in trials) else []
    """

    def __init__(self, search: Known) -> None:
        self.search = search
        """Knowledge of the experiment: its configuration, trials and random numbers."""

    def on_start(self) -> Sequence[Operation] | None:
        """The experiment has started; there are no trials yet."""
        return None

    def on_trial_created(self, trial: Trial) -> Sequence[Operation] | None:
        """A `trial` that you asked for has started (and may wait for slots)."""
        return None

    def on_validation(self, trial: Trial) -> Sequence[Operation] | None:
        """A `trial` was validated: see its `length`, `metrics` and `at_target`. Also called if the trial's own code ended its
        training (`trial.ended`), with its last validation."""
        return None

    def on_trial_failed(self, trial: Trial, error: str, *, invalid_hyperparameters: bool) -> Sequence[Operation] | None:
        """A `trial` is given up, after `max_restarts` errors of its code or because its code refused the hyperparameters.
        `error`: text of the last error. `invalid_hyperparameters`: True: it was InvalidHyperparameters."""
        return None

    def on_trial_finished(self, trial: Trial) -> Sequence[Operation] | None:
        """A `trial` was stopped, and nothing of it runs any more."""
        return None

    def on_limits_changed(self) -> Sequence[Operation] | None:
        """The user changed max_trials or max_concurrent_trials: see `self.search`."""
        return None


class Told:
    """Passes the events of an experiment to its searcher, in order, and returns its decision on each: for tests of a search, too.
    `kind`: class of the searcher. `submitted`: event of the experiment's submission."""

    def __init__(self, kind: type[CustomSearcher], submitted: ExperimentSubmitted) -> None:
        self._experiment_id = submitted.experiment_id
        self._search = Known(submitted)
        self._searcher = kind(self._search)

    def tell(self, event: Event) -> list[Operation]:
        """Operations that the searcher asks for on this `event`; empty: none. Raises the errors of the searcher's code."""
        return self.hear(event.data)

    def hear(self, data: EventData) -> list[Operation]:
        """Like `tell`, for the payload of an event (`data`).

        A trial may be further than a length that it is sent to: it goes on from a checkpoint of an earlier experiment. Then it
        has reached that length, and no worker is asked to train to it: `on_validation` is called again, with its last validation.
        So it is with a trial that ended by itself, at its end and for each length that it is sent to later.
        """
        decided, asked = [], deque(self._hear(data))
        while asked:
            operation = asked.popleft()
            trial = self._search.trials.get(operation.trial) if isinstance(operation, Extend) else None
            # Targets of a trial rise, so this ends.
            if isinstance(operation, Extend) and trial is not None and trial.target < operation.length <= self._reach(trial):
                trial.target = operation.length
                asked.extend(self._searcher.on_validation(trial) or ())
            else:
                decided.append(operation)
        return decided

    def _reach(self, trial: Trial) -> int:
        """Length up to which nothing is trained: the trial's last validation stands for it."""
        return trial.length if trial.ended is None else max(trial.length, self._search.max_length)

    def _hear(self, data: EventData) -> list[Operation]:
        if isinstance(data, (ExperimentStarted, ExperimentTrialLimitsChanged)):
            return list(self._of_experiment(data) or ())
        trial_id = getattr(data, "trial_id", None)
        if trial_id is None or experiment_of(trial_id) != self._experiment_id:
            return []
        number = int(trial_id.rsplit("-", 1)[1])
        if isinstance(data, TrialRequested):
            parent = None if data.parent_trial_id is None else int(data.parent_trial_id.rsplit("-", 1)[1])
            trial = Trial(number, data.hyperparameters, data.target_length, parent=parent)
            self._search.trials[number] = trial
            return list(self._searcher.on_trial_created(trial) or ())
        known = self._search.trials.get(number)
        return [] if known is None else list(self._of_trial(known, data) or ())

    def _of_experiment(self, data: ExperimentStarted | ExperimentTrialLimitsChanged) -> Sequence[Operation] | None:
        if isinstance(data, ExperimentStarted):
            return self._searcher.on_start()
        self._search.max_trials = data.max_trials or self._search.max_trials
        self._search.max_concurrent_trials = data.max_concurrent_trials or self._search.max_concurrent_trials
        return self._searcher.on_limits_changed()

    def _of_trial(self, trial: Trial, data: Any) -> Sequence[Operation] | None:
        match data:
            case TrialExtended():
                trial.target, trial.state = data.target_length, "running"
            case TrialPaused():
                trial.state = "waiting"
            case TrialStopped():
                trial.state, trial.outcome = "stopped", data.outcome
            case CheckpointSaved():
                trial.checkpoint_id = data.checkpoint_id
            case ValidationReported():
                trial.length, trial.metrics = data.length, data.metrics
                return self._searcher.on_validation(trial)
            case TrainingEnded():
                told, trial.ended = trial.at_target, data.said
                return None if told else self._searcher.on_validation(trial)
            case TrialFailed() if data.final:
                trial.state, trial.outcome = "stopped", "failed"
                return self._searcher.on_trial_failed(trial, data.error, invalid_hyperparameters=data.invalid_hyperparameters)
            case TrialFinished():
                trial.state = "finished"
                return self._searcher.on_trial_finished(trial)
        return None


__all__ = ["Complete", "Create", "CustomSearcher", "Extend", "Fail", "Known", "Operation", "Stop", "Told", "Trial"]
