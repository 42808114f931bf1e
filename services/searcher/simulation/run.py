"""Runs one search to its end in virtual time: workers that train, fail, straggle and start again. One seed is one run.

The searcher's core is the live one; this stands for everything around it. Time is counted in units of length: a worker trains
one unit in one unit of time, times its speed.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentSubmitted, SearchOperationsRequested
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import CheckpointSaved, TrialFinished, ValidationReported
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.services.searcher.adapters.samplers import propose, wanting
from tenuto.services.searcher.decide import propose as decide_proposal
from tenuto.services.searcher.decide import settle
from tenuto.services.searcher.evolve import evolve
from tenuto.services.searcher.methods import RULE_VERSION
from tenuto.services.searcher.simulation.curves import Curves
from tenuto.services.searcher.state import SearcherState, initial

EVENTS_MAX = 20_000_000
"""Most events of a search that ends: an error is better than a loop for ever."""

BETWEEN_MAX = 64
"""Validations that are looked at between two targets: of more, every second, third, ... one. A period may be one of a million."""

Own = Callable[[ExperimentSubmitted], Callable[[EventData], list[Operation]]]
"""Makes a user's own searcher for an experiment: it is told what happens, and says what to do."""


class SearchStuck(Exception):
    """A search of the user's own that neither ends nor asks for anything, or asks for too much at once."""


@dataclass(frozen=True)
class Surroundings:
    workers: int = 4
    failure_probability: float = 0.0
    """Probability that a trial is lost on its way to a target, at a random moment; it restarts from its last checkpoint."""
    straggler_probability: float = 0.0
    straggler_factor: float = 5.0
    """Factor by which a straggler trains slower."""
    start_cost: float = 0.0
    """Time from a slot's assignment to the first step, in units of length."""
    seed: int = 0


@dataclass
class SearchOutcome:
    """Outcome of a simulated search. `path` has a point for each time the best loss fell."""

    path: list[tuple[float, float, float]] = field(default_factory=list)
    """(length trained so far by all, time, best loss so far), by losses that were measured."""
    trained: float = 0.0
    time: float = 0.0
    trials: int = 0
    best: float = float("inf")
    ended: str = ""

    def cost_to(self, target: float) -> float:
        """Length trained in all until a loss of at most `target` was measured; infinite where it never was."""
        return next((trained for trained, _, loss in self.path if loss <= target), float("inf"))


@dataclass
class _SimulatedTrial:
    trial_id: str
    hyperparameters: dict[str, object]
    target: int
    length: int = 0
    wanted: bool = True
    busy: bool = False
    run: int = 0
    """Counts its starts and stops: what was planned for an earlier one does not happen."""


class Simulation:
    def __init__(self, config: ExperimentConfig, curves: Curves, around: Surroundings, seed: int, own: Own | None = None) -> None:
        self.curves, self.around = curves, around
        self.metric, self.sign = config.searcher.metric, 1.0 if config.searcher.smaller_is_better else -1.0
        self.saves = config.searcher.DERIVES
        self.averaged = getattr(config.searcher, "average_validations", 1)
        period = config.min_validation_period
        same_unit = period is not None and period.unit == config.searcher.max_length.unit
        self.period = period.value if period is not None and same_unit else config.searcher.max_length.value
        """Length between two validations, in units of length; if none is configured, a trial is validated at its targets only.
        Values validated on the way count as found there and then, as in a training."""
        self.random = random.Random(around.seed)
        self.state: SearcherState = initial()
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.queue: deque[_SimulatedTrial] = deque()
        self.trials: dict[str, _SimulatedTrial] = {}
        self.free = around.workers
        self.count = 0
        self.outcome = SearchOutcome()
        self.submission = ExperimentSubmitted(
            experiment_id=1, config=config, seed=seed, context_hash="", context_size_bytes=0, user="simulation"
        )
        self.own = own(self.submission) if own is not None else None
        self.heard = 0
        """Events that the user's own searcher was told."""
        self.unheard: deque[EventData] = deque()
        self.hearing = False

    def run(self) -> SearchOutcome:
        self.put(self.submission)
        while self.heap and self.count < EVENTS_MAX:
            self.outcome.time, _, action = heapq.heappop(self.heap)
            action()
        if not self.outcome.ended and self.own is not None:
            raise SearchStuck("nothing trains any more, and the class asks for nothing: it has to return Complete() at its end")
        assert self.outcome.ended, "the search did not end"
        return self.outcome

    def at(self, delay: float, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.outcome.time + delay, self.count, action))

    def put(self, data: EventData) -> None:
        """An input: fold, decide, and do what was decided."""
        decided, self.state = settle(evolve(self.state, data), data, RULE_VERSION)
        self.follow(decided)
        while wanted := wanting(self.state):
            for experiment in wanted:
                proposed = decide_proposal(self.state, propose(experiment))
                for made in proposed:
                    self.state = evolve(self.state, made)
                self.follow(proposed)
        self.start()
        if self.own is not None:
            self.unheard += (data, *decided)
            self.tell()

    def tell(self) -> None:
        """Tell the user's own searcher what happened, in order; what it asks for is an input like any other."""
        if self.hearing or self.own is None:
            return
        self.hearing = True
        while self.unheard:
            self.heard += 1
            operations = self.own(self.unheard.popleft())
            if len(operations) > OPERATIONS_MAX:
                raise SearchStuck(f"it asks for {len(operations):,} operations at once; at most {OPERATIONS_MAX:,} are allowed")
            if operations:
                cause = self.heard
                self.put(
                    SearchOperationsRequested(
                        experiment_id=1,
                        searcher="simulation",
                        cause_id=str(cause),
                        cause_position=cause,
                        operations=tuple(operations),
                    )
                )
        self.hearing = False

    def follow(self, decided: list[EventData]) -> None:
        for data in decided:
            self.react(data)

    def react(self, data: EventData) -> None:
        match data:
            case TrialRequested():
                trial = _SimulatedTrial(data.trial_id, data.hyperparameters, data.target_length)
                if data.source_checkpoint_id is not None:
                    trial.length = int(data.source_checkpoint_id.rsplit("@", 1)[1])
                self.trials[data.trial_id] = trial
                self.queue.append(trial)
                self.outcome.trials += 1
            case TrialExtended():
                trial = self.trials[data.trial_id]
                trial.target, trial.wanted = data.target_length, True
                if trial.busy:
                    self.train(trial, 0.0)
                else:
                    self.queue.append(trial)
            case TrialPaused():
                self.release(self.trials[data.trial_id])
            case TrialStopped():
                self.release(self.trials.pop(data.trial_id))
                finished = TrialFinished(trial_id=data.trial_id, batches=0, length=0, checkpoint_id=None)
                self.at(0.0, lambda: self.put(finished))
            case ExperimentCompleted() | ExperimentFailed() | ExperimentCanceled():
                self.outcome.ended = data.TYPE
            case _:
                pass

    def release(self, trial: _SimulatedTrial) -> None:
        trial.wanted = False
        trial.run += 1
        if trial.busy:
            trial.busy = False
            self.free += 1

    def start(self) -> None:
        while self.free and self.queue:
            trial = self.queue.popleft()
            if trial.wanted and not trial.busy:
                trial.busy = True
                self.free -= 1
                self.train(trial, self.around.start_cost)

    def train(self, trial: _SimulatedTrial, delay: float) -> None:
        trial.run += 1
        run, steps = trial.run, trial.target - trial.length
        slow = self.random.random() < self.around.straggler_probability
        pace = (self.around.straggler_factor if slow else 1.0) * self.random.uniform(0.9, 1.1)
        if self.random.random() < self.around.failure_probability:
            part = self.random.random()
            self.at(delay + part * steps * pace, lambda: self.lose(trial, run, part * steps))
        else:
            self.at(delay + steps * pace, lambda: self.reach(trial, run))

    def lose(self, trial: _SimulatedTrial, run: int, trained: float) -> None:
        """Killed: what it trained since its last checkpoint is paid for and gone."""
        if trial.run == run:
            self.outcome.trained += trained
            self.train(trial, self.around.start_cost)

    def reach(self, trial: _SimulatedTrial, run: int) -> None:
        if trial.run != run:
            return
        self.validate_on_the_way(trial)
        self.outcome.trained += trial.target - trial.length
        trial.length = trial.target
        loss = self.curves.loss(trial.hyperparameters, trial.length)
        self.notice(loss, 0)
        if self.saves:
            self.put(
                CheckpointSaved(
                    trial_id=trial.trial_id,
                    allocation_id="",
                    checkpoint_id=f"{trial.trial_id}@{trial.length}",
                    batches=trial.length,
                    length=trial.length,
                    files=(),
                    size_bytes=0,
                    location="",
                )
            )
        self.validate(trial, trial.length, loss)

    def validate_on_the_way(self, trial: _SimulatedTrial) -> None:
        """Reports to the searcher the last validations before the target, which are averaged with that at the target."""
        between = range(trial.length // self.period * self.period + self.period, trial.target, self.period)
        told = len(between) - (self.averaged - 1)
        each = -(-len(between) // BETWEEN_MAX) or 1
        for index, length in enumerate(between):
            if index >= told or (index + 1) % each == 0:
                loss = self.curves.loss(trial.hyperparameters, length)
                self.notice(loss, length - trial.length)
                if index >= told:
                    self.validate(trial, length, loss)

    def notice(self, loss: float, more: int) -> None:
        """A loss was measured when `more` than what is counted had been trained."""
        if loss < self.outcome.best:
            self.outcome.best = loss
            self.outcome.path.append((self.outcome.trained + more, self.outcome.time, loss))

    def validate(self, trial: _SimulatedTrial, length: int, loss: float) -> None:
        metrics = {self.metric: self.sign * loss}
        self.put(ValidationReported(trial_id=trial.trial_id, allocation_id="", batches=length, length=length, metrics=metrics))


def simulate(
    config: ExperimentConfig, curves: Curves, around: Surroundings | None = None, seed: int = 0, own: Own | None = None
) -> SearchOutcome:
    """One search to its end. `seed` is the experiment's; what happens around it has a seed of its own. `own`: who decides where
    the searcher is `custom`. Raises SearchStuck."""
    return Simulation(config, curves, around or Surroundings(), seed, own).run()
