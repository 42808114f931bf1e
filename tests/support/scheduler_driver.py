"""Runs the scheduler's core as the service loop does, on a log in memory, and makes the events that others would record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from tenuto.kernel.decision import step
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted, PoolPolicyChanged
from tenuto.schemas.events.run import WorkersExited, WorkersOutcome, WorkersStarted
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFailed
from tenuto.services.scheduler.core import SchedulerCore

NAMESPACE = UUID("c0ffee00-0000-4000-8000-000000000000")
START_US = 1_700_000_000_000_000
WHY = Reason(rule="test")


class Driver:
    """`record` puts others' events into the log; `decide_all` lets the scheduler read them, as far behind as the test wants."""

    def __init__(self, *, checks: bool = True) -> None:
        self.core = SchedulerCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.checks = checks
        self._versions: dict[str, int] = {}
        self._read = 0
        self._passed_us = 0

    def time_passes(self, microseconds: int) -> None:
        self._passed_us += microseconds

    @property
    def now_us(self) -> int:
        return START_US + self._passed_us + len(self.log) + 1

    def started(self, allocation: str) -> EventData:
        agents = tuple(agent_id for agent_id, _ in self.state.allocations[allocation].slots)
        return WorkersStarted(allocation_id=allocation, trial_id=allocation.rsplit("-", 1)[0], agent_ids=agents)

    def record(self, data: EventData) -> Event:
        position = len(self.log) + 1
        return self._append(
            Event(
                id=uuid5(NAMESPACE, str(position)),
                stream=data.stream(),
                type=data.TYPE,
                schema_version=data.VERSION,
                time_us=self.now_us,
                payload=data.to_json(),
                actor=f"{data.OWNER}/1",
                correlation_id=str(getattr(data, "experiment_id", "")),
            )
        )

    def _append(self, event: Event) -> Event:
        version = self._versions[event.stream] = self._versions.get(event.stream, 0) + 1
        self.log.append(event.recorded(len(self.log) + 1, version))
        return self.log[-1]

    @property
    def read_position(self) -> int:
        return self._read

    @property
    def behind(self) -> int:
        return len(self.log) - self._read

    def decide_all(self, inputs_max: int | None = None) -> list[EventData]:
        """Folds the waiting inputs (or the first `inputs_max`) and commits the decisions as one batch. Returns the scheduler's
        events."""
        waiting = self.log[self._read :][:inputs_max]
        decided: list[Event] = []
        for event in waiting:
            self._read = event.position
            if event.type in self.core.emits:
                continue
            self.state = self.core.evolve(self.state, event)
            self.state, drafts = step(self.core, self.state, event, seen_position=event.position, time_us=self.now_us - 1)
            decided.extend(drafts)
            if self.checks:
                self.core.check(self.state)
        for event in decided:
            self._append(event)
        return [event.data for event in decided]

    def feed(self, *facts: EventData) -> list[EventData]:
        """Records the facts and lets the scheduler answer each of them at once."""
        decided: list[EventData] = []
        for data in facts:
            self.record(data)
            decided.extend(self.decide_all())
        return decided


def submitted(
    experiment: int,
    *,
    slots: int = 1,
    priority: int = 42,
    max_slots: int | None = None,
    pool: str = "default",
    user: str = "ada",
    expected: float | None = None,
    searcher: dict[str, Any] | None = None,
    image: str | None = None,
    environment: dict[str, Any] | None = None,
    **resources: Any,
) -> EventData:
    """`resources`: further fields of that section of the configuration; `environment`: of that one."""
    search = {"name": "random", "metric": "loss", "max_trials": 1000, "max_length": {"batches": 100}}
    config = ExperimentConfig.model_validate(
        {
            "name": f"experiment {experiment}",
            "entrypoint": "model_def:Trial",
            "searcher": searcher or search,
            "resources": {
                "slots_per_trial": slots,
                "priority": priority,
                "max_slots": max_slots,
                "pool": pool,
                "expected_seconds": expected,
                **resources,
            },
            "environment": {"image": image, **(environment or {})},
        }
    )
    return ExperimentSubmitted(
        experiment_id=experiment, config=config, seed=7, context_hash="0" * 64, context_size_bytes=1, user=user
    )


def requested(experiment: int, *numbers: int) -> list[EventData]:
    return [
        TrialRequested(
            experiment_id=experiment,
            trial_id=f"{experiment}-{number}",
            trial_number=number,
            hyperparameters={},
            seed=1,
            target_length=10,
            reason=WHY,
        )
        for number in numbers
    ]


def joined(
    agent: str,
    slots: int | Sequence[int],
    *,
    kind: str = "cpu",
    pool: str = "default",
    labels: Sequence[str] = (),
    device: str = "",
    auxiliary_max: int = 100,
    runtimes: Sequence[str] = ("process",),
    leaving: str = "",
    image: str = "",
) -> EventData:
    ids = range(slots) if isinstance(slots, int) else slots
    return AgentJoined.model_validate(
        {
            "agent_id": agent,
            "pool": pool,
            "host": agent,
            "slots": [Slot.model_validate({"slot_id": n, "kind": kind, "device": device or kind}) for n in ids],
            "labels": tuple(labels),
            "auxiliary_trials_max": auxiliary_max,
            "version": "1",
            "runtimes": tuple(runtimes),
            "leaving": leaving,
            "image": image,
        }
    )


def exited(allocation: str, outcome: WorkersOutcome = "finished", *, pauses: bool = False) -> EventData:
    code = {"finished": 0, "preempted": 80, "paused": 81, "failed": 1, "lost": None}[outcome]
    data = WorkersExited(allocation_id=allocation, trial_id=allocation.rsplit("-", 1)[0], outcome=outcome, exit_code=code)
    return data.model_copy(update={"setbacks": 2, "restart_at_us": 1}) if pauses else data


def _experiment(trial: str) -> int:
    return int(trial.split("-")[0])


def extended(trial: str) -> EventData:
    return TrialExtended(experiment_id=_experiment(trial), trial_id=trial, target_length=20, reason=WHY)


def paused(trial: str) -> EventData:
    return TrialPaused(experiment_id=_experiment(trial), trial_id=trial, reason=WHY)


def stopped(trial: str) -> EventData:
    return TrialStopped(experiment_id=_experiment(trial), trial_id=trial, outcome="completed", reason=WHY)


def failed(allocation: str, *, final: bool = False) -> EventData:
    return TrialFailed(trial_id=allocation.rsplit("-", 1)[0], allocation_id=allocation, error="boom", failures=1, final=final)


def short(decided: Sequence[EventData]) -> list[str]:
    """The decisions as a test reads them: `+1-1-1 a:0,1`, `!1-1-1` (preempted), `-1-1-1` (released)."""
    words = []
    for data in decided:
        if isinstance(data, AllocationGranted):
            parts = " ".join(f"{part.agent_id}:{','.join(map(str, part.slot_ids))}" for part in data.slots)
            words.append(f"+{data.allocation_id} {parts}")
        elif isinstance(data, AllocationPreempted):
            words.append(f"!{data.allocation_id}")
        elif isinstance(data, AllocationReleased):
            words.append(f"-{data.allocation_id}")
    return words


def fair(pool: str = "default", half_life: float | None = None) -> PoolPolicyChanged:
    return PoolPolicyChanged(pool=pool, policy="fair_share", usage_half_life_hours=half_life)


def settle_all(driver: Driver) -> None:
    """Preempted workers leave until nothing changes any more."""
    for _ in range(1_000):
        leaving = [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving == "preempted"]
        if not leaving:
            return
        driver.feed(*(exited(key, "preempted") for key in leaving))
    raise AssertionError("gangs are preempted to and fro")


def held(driver: Driver) -> dict[int, int]:
    slots: Counter[int] = Counter()
    for key in sorted(driver.state.allocations):
        allocation = driver.state.allocations[key]
        slots[allocation.experiment_id] += allocation.size
    return dict(slots)
