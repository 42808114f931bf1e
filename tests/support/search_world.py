"""A world around the searcher's core: a virtual clock, slots, and trials that train, fail, repeat themselves and come late.

One seed makes one run. The core runs as it does live (`kernel.decision.step`), but behind the log by a random number of events.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.kernel.decision import step
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentCancelRequested, ExperimentSubmitted, ExperimentTrialLimitsChanged
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.ids import name_id
from tenuto.schemas.record import Parent, RecordedValidation, TrialSource
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods.sampling import trial_seed

SPACE = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "model": {"layers": {"type": "int", "minval": 1, "maxval": 4}, "act": {"type": "categorical", "vals": ["relu", "tanh"]}},
    "dropout": {"type": "double", "minval": 0, "maxval": 0.5},
    "batch_size": 32,
}
ENDS = {"ExperimentCompleted", "ExperimentFailed", "ExperimentCanceled"}


def submitted(
    searcher: dict[str, Any],
    experiment_id: int = 1,
    seed: int = 7,
    space: dict[str, Any] | None = None,
    sources: Sequence[TrialSource] = (),
) -> ExperimentSubmitted:
    """`sources`: the experiment goes on with these trials of an earlier one."""
    base = {"metric": "loss", "max_length": {"epochs": 16}}
    config = ExperimentConfig.model_validate(
        {
            "name": "t",
            "entrypoint": "m:T",
            "hyperparameters": SPACE if space is None else space,
            "searcher": base | searcher,
        }
    )
    return ExperimentSubmitted(
        experiment_id=experiment_id, config=config, seed=seed, context_hash="", context_size_bytes=0, user="u",
        parent=Parent(relation="continuation", experiment_id=99, sources=tuple(sources)) if sources else None,
    )  # fmt: skip


def source(number: int, length: int, *reached: tuple[int, float], seed: int = 7) -> TrialSource:
    """The checkpoint of an earlier experiment's trial at `length`. `reached`: its validations there, as (length, metric)."""
    return TrialSource(
        trial_number=number, seed=trial_seed(seed, number), checkpoint_id=f"99-{number}-1-{length}", location="file:///c",
        batches=length * 10, validations=tuple(RecordedValidation(length=at, metric=metric) for at, metric in reached),
    )  # fmt: skip


class Recorder:
    """The log and the searcher behind it. `lag` says how many inputs may wait before the searcher takes them."""

    def __init__(self, lag: Callable[[], int] = lambda: 0) -> None:
        self.core = SearcherCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.versions: Counter[str] = Counter()
        self.waiting: deque[Event] = deque()
        self.lag = lag
        self.time_us = 0
        self.checked = True
        """Assert the core's invariants after each step."""

    def put(self, data: EventData) -> list[EventData]:
        """Record an input; returns what the searcher decided on this occasion."""
        event = Event(
            id=name_id("input", str(len(self.log))),
            stream=data.stream(),
            type=data.TYPE,
            schema_version=1,
            time_us=self.time_us,
            payload=data.to_json(),
            actor=f"{data.OWNER}/1",
        )
        self._append(event)
        self.waiting.append(self.log[-1])
        return self.catch_up(self.lag())

    def catch_up(self, leave: int = 0) -> list[EventData]:
        decided: list[EventData] = []
        while len(self.waiting) > leave:
            cause = self.waiting.popleft()
            state = self.core.evolve(self.state, cause)
            self.state, events = step(self.core, state, cause, seen_position=cause.position, time_us=self.time_us)
            if self.checked:
                self.core.check(self.state)
            for event in events:
                self._append(event)
                decided.append(event.data)
        return decided

    def _append(self, event: Event) -> None:
        self.versions[event.stream] += 1
        self.log.append(event.recorded(len(self.log) + 1, self.versions[event.stream]))


@dataclass
class Faults:
    fail: float = 0.0
    """Probability that a trial fails on its way to a target; half of the failures are final."""
    nan: float = 0.0
    missing: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    """Probability of a validation after the trial was stopped."""
    early: float = 0.0
    """Probability of a validation below the target."""
    end: float = 0.0
    """Probability that a trial's own code ends its training on its way to a target, nearly always after a validation."""
    cancel_at: float | None = None
    unsaved: float = 0.0
    """Probability that a trial saves no checkpoint at a target."""
    refuse: float = 0.0
    """Probability that the model code refuses the hyperparameters of a trial, on its way to its first target."""
    limits_at: tuple[float, int, int] | None = None
    """When other limits are set: the time, max_trials and max_concurrent_trials."""


@dataclass
class Worker:
    trial_id: str
    number: int
    hyperparameters: dict[str, Any]
    target: int
    length: int = 0
    validated: int | None = None
    """Length at its last validation: at one length a worker validates once."""
    busy: bool = False
    wanted: bool = True
    stopped: bool = False
    failures: int = 0
    ended: bool = False
    refused: bool = False
    """Decided when it starts for the first time."""


Objective = Callable[[Worker, int], float]


def any_objective(seed: int) -> Objective:
    return lambda worker, length: random.Random(f"{seed}/{worker.number}/{length}").random()


@dataclass
class World:
    """Trains one experiment to its end. Time is counted in units of length."""

    request: ExperimentSubmitted
    seed: int = 0
    slots: int = 8
    faults: Faults = field(default_factory=Faults)
    objective: Objective | None = None
    lag_max: int = 0
    events_max: int = 1_000_000
    checked: bool = True

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.recorder = Recorder(lambda: self.random.randint(0, self.lag_max))
        self.recorder.checked = self.checked
        self.now = 0.0
        self.count = 0
        self.heap: list[tuple[float, int, Callable[[], EventData | None]]] = []
        self.workers: dict[str, Worker] = {}
        self.queue: deque[Worker] = deque()
        self.free = self.slots
        self.trained = 0
        self.best_by_training: list[tuple[int, float]] = []
        self.measure = self.objective or any_objective(self.seed)

    def run(self) -> list[Event]:
        self.react(self.recorder.put(self.request))
        if self.faults.cancel_at is not None:
            self.at(self.faults.cancel_at, lambda: ExperimentCancelRequested(experiment_id=self.request.experiment_id))
        if (limits := self.faults.limits_at) is not None:
            self.at(limits[0], lambda: ExperimentTrialLimitsChanged(
                experiment_id=self.request.experiment_id, max_trials=limits[1], max_concurrent_trials=limits[2]
            ))  # fmt: skip
        while True:
            if not self.heap:
                if not self.recorder.waiting:
                    return self.recorder.log
                self.react(self.recorder.catch_up())
                continue
            self.now, _, action = heapq.heappop(self.heap)
            self.recorder.time_us = int(self.now * 1e6)
            data = action()
            assert self.count < self.events_max, f"seed {self.seed}: the search does not end"
            if data is not None:
                self.react(self.recorder.put(data))
            self.start()

    def at(self, delay: float, action: Callable[[], EventData | None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay, self.count, action))

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    # -- what the searcher decided

    def react(self, decided: list[EventData]) -> None:
        for data in decided:
            if isinstance(data, TrialRequested):
                worker = Worker(data.trial_id, data.trial_number, data.hyperparameters, data.target_length)
                parent = self.request.parent
                source = parent.source_of(data.trial_number, data.seed, data.hyperparameters) if parent else None
                if data.source_checkpoint_id is not None:
                    worker.length = int(data.source_checkpoint_id.split("@")[1])
                elif source is not None:
                    worker.length = source.batches // 10
                worker.refused = self.chance(self.faults.refuse)
                self.workers[data.trial_id] = worker
                self.queue.append(worker)
            elif isinstance(data, TrialExtended):
                worker = self.workers[data.trial_id]
                worker.target, worker.wanted = data.target_length, True
                if worker.busy:
                    self.train(worker)
                else:
                    self.queue.append(worker)
            elif isinstance(data, TrialPaused):
                self.workers[data.trial_id].wanted = False
                self.release(self.workers[data.trial_id])
            elif isinstance(data, TrialStopped):
                self.stop(self.workers[data.trial_id])
        self.start()

    def stop(self, worker: Worker) -> None:
        worker.wanted, worker.stopped = False, True
        self.release(worker)
        if self.chance(self.faults.late):
            self.at(0.0, lambda: self.validation(worker, worker.target))
        self.at(self.random.random(), lambda: TrialFinished(
            trial_id=worker.trial_id, batches=worker.length, length=worker.length, checkpoint_id=None
        ))  # fmt: skip

    def release(self, worker: Worker) -> None:
        if worker.busy:
            worker.busy = False
            self.free += 1

    # -- what the trials do

    def start(self) -> None:
        while self.free and self.queue:
            worker = self.queue.popleft()
            if worker.wanted and not worker.busy:
                worker.busy = True
                self.free -= 1
                self.train(worker)

    def train(self, worker: Worker) -> None:
        if worker.ended:
            return  # it waits until the search stops it
        steps = max(0, worker.target - worker.length)
        speed = self.random.uniform(0.5, 2.0)
        if self.chance(self.faults.early) and steps > 1:
            self.at(steps * speed / 2, lambda: self.validation(worker, worker.length) if worker.busy else None)
        if worker.refused:
            self.at(steps * speed, lambda: self.refuse(worker))
            return
        if self.chance(self.faults.end):
            self.at(steps * speed / 2, lambda target=worker.target: self.end(worker, target))  # type: ignore[misc]
            return
        failing = self.chance(self.faults.fail)
        self.at(steps * speed, lambda target=worker.target: self.fail(worker) if failing else self.reach(worker, target))  # type: ignore[misc]

    def fail(self, worker: Worker) -> EventData | None:
        if not worker.busy:
            return None
        worker.failures += 1
        final = self.chance(0.5)
        if final:
            self.release(worker)
            worker.wanted = False
        else:
            self.at(0.1, lambda: self.train(worker) if worker.busy else None)  # type: ignore[func-returns-value]
        return TrialFailed(trial_id=worker.trial_id, allocation_id="a", error="boom", failures=worker.failures, final=final)

    def end(self, worker: Worker, target: int) -> EventData | None:
        if not worker.busy or worker.target != target or worker.ended:
            return None
        worker.ended = True
        at = min(worker.length + 1, max(worker.length, target - 1))
        if not self.chance(0.1):
            worker.length = at
            self.react(self.recorder.put(self.validation(worker, at)))
        ended = TrainingEnded(trial_id=worker.trial_id, allocation_id="a", batches=at * 10, length=at, said="early stopping")
        if self.chance(self.faults.repeat):
            self.at(self.random.random() * 3, lambda: ended)
        return ended

    def refuse(self, worker: Worker) -> EventData | None:
        if not worker.busy:
            return None
        self.release(worker)
        worker.wanted = False
        return TrialFailed(
            trial_id=worker.trial_id, allocation_id="a", error="no", failures=1, final=True, invalid_hyperparameters=True
        )

    def reach(self, worker: Worker, target: int) -> EventData | None:
        # As in the training loop: at its target or beyond it a worker validates, once, and waits for what the search says.
        if not worker.busy or worker.target != target or (worker.length >= target and worker.validated == worker.length):
            return None
        self.trained += max(0, target - worker.length)
        worker.length = worker.validated = max(target, worker.length)
        if self.request.config.searcher.name == "pbt" and not self.chance(self.faults.unsaved):
            self.react(self.recorder.put(self.saved(worker)))
        data = self.validation(worker, worker.length)
        if self.chance(self.faults.repeat):
            self.at(self.random.random() * 3, lambda: data)
        return data

    def saved(self, worker: Worker) -> CheckpointSaved:
        return CheckpointSaved(
            trial_id=worker.trial_id, allocation_id="a", checkpoint_id=f"{worker.trial_id}@{worker.length}",
            batches=worker.length * 10, length=worker.length, files=(), size_bytes=0, location="file:///x",
        )  # fmt: skip

    def validation(self, worker: Worker, length: int) -> ValidationReported:
        metrics = {"accuracy": 0.5}
        if not self.chance(self.faults.missing):
            value = float("nan") if self.chance(self.faults.nan) else self.measure(worker, length)
            metrics[self.request.config.searcher.metric] = value
            self.best_by_training.append((self.trained, value))
        return ValidationReported(
            trial_id=worker.trial_id, allocation_id="a", batches=length * 10, length=length, metrics=metrics
        )
