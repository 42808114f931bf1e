"""Course of a simulation that does not depend on the policy: agents, requests of users, and trials with their training time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AUXILIARY_TRIALS_MAX, AgentJoined, Slot
from tenuto.schemas.events.agent import AgentEvent as AgentData
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationReleased, AllocationResized
from tenuto.schemas.events.request import ClusterRequest, ExperimentSubmitted, PoolPolicyChanged, RequestEvent
from tenuto.schemas.events.run import WorkersExited, WorkersStarted
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.ids import experiment_of, trial_of


@dataclass(frozen=True)
class TrialScript:
    trial_id: str
    experiment_id: int
    number: int
    arrives_us: int
    work_us: int
    """Time it trains on the slots that it needs to start, if nothing interrupts it."""


@dataclass
class SimulationScript:
    facts: list[tuple[int, EventData]] = field(default_factory=list)
    """(time in us, event recorded then): agents and requests."""
    trials: list[TrialScript] = field(default_factory=list)
    startup_us: int | None = None
    """Median time from a grant until workers train; None if it was not observed."""
    save_us: int | None = None
    """Median time from a preemption until the workers left; None if it was not observed."""


def joined(
    agent_id: str,
    slots: int,
    pool: str = "default",
    labels: tuple[str, ...] = (),
    auxiliary_max: int = AUXILIARY_TRIALS_MAX,
) -> AgentJoined:
    offered = tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(slots))
    return AgentJoined(
        agent_id=agent_id,
        pool=pool,
        host=agent_id,
        slots=offered,
        version="simulated",
        labels=labels,
        auxiliary_trials_max=auxiliary_max,
    )


def submitted(experiment_id: int, user: str, **resources: Any) -> ExperimentSubmitted:
    config = ExperimentConfig.model_validate(
        {
            "name": f"job {experiment_id}",
            "entrypoint": "model_def:Trial",
            "searcher": {"name": "random", "metric": "loss", "max_trials": 1, "max_length": {"batches": 1}},
            "resources": resources,
        }
    )
    return ExperimentSubmitted(
        experiment_id=experiment_id, config=config, seed=0, context_hash="0" * 64, context_size_bytes=0, user=user
    )


def recorded(events: Iterable[Event], *, policies: bool = False) -> SimulationScript:
    """A cluster's history as a script, from its log alone. A trial arrives when the search asked for it, and its work is the
    time that its workers trained. What the search would have asked for had the trials ended in another order is not known.

    Trials that never ran are left out, and so are those that had not stopped at the end of the log (their work is unknown).
    `policies`: those of the pools are facts of the script, too."""
    script = SimulationScript()
    asked: dict[str, tuple[int, TrialRequested]] = {}
    stopped: set[str] = set()
    times = _Times()
    for event in events:
        data = event.data
        times.learn(data, event.time_us)
        if isinstance(data, PoolPolicyChanged) and not policies:
            continue
        if isinstance(data, RequestEvent | ClusterRequest | AgentData):
            script.facts.append((event.time_us, data))
        elif isinstance(data, TrialRequested):
            asked[data.trial_id] = (event.time_us, data)
        elif isinstance(data, TrialStopped):
            stopped.add(data.trial_id)
    script.startup_us = round(median(times.startups)) if times.startups else None
    script.save_us = round(median(times.saves)) if times.saves else None
    for trial_id, (time_us, data) in asked.items():
        if (work_us := times.work.get(trial_id)) and trial_id in stopped:
            script.trials.append(TrialScript(trial_id, data.experiment_id, data.trial_number, time_us, work_us))
    return script


class _Times:
    """Durations of a history's allocations, in microseconds."""

    def __init__(self) -> None:
        self.work: dict[str, int] = {}
        """Training of each trial, with as many slots as it needs at least."""
        self.startups: list[int] = []
        self.saves: list[int] = []
        """Times from a preemption to the exit of the workers."""
        self._least: dict[int, int] = {}
        self._slots: dict[str, int] = {}
        self._granted: dict[str, int] = {}
        self._started: dict[str, int] = {}
        self._preempted: dict[str, int] = {}

    def learn(self, data: EventData, time_us: int) -> None:
        if isinstance(data, ExperimentSubmitted):
            self._least[data.experiment_id] = data.config.resources.slots_min
        elif isinstance(data, AllocationGranted):
            self._granted[data.allocation_id] = time_us
            self._slots[data.allocation_id] = sum(len(part.slot_ids) for part in data.slots)
        elif isinstance(data, (AllocationPreempted, AllocationResized)):
            self._preempted[data.allocation_id] = time_us
        elif isinstance(data, WorkersStarted):
            self._started[data.allocation_id] = time_us
            self.startups.append(time_us - self._granted.pop(data.allocation_id, time_us))
        elif isinstance(data, WorkersExited) and data.allocation_id in self._started:
            self._exited(data.allocation_id, time_us)

    def _exited(self, allocation_id: str, time_us: int) -> None:
        trial = trial_of(allocation_id)
        trained_us = time_us - self._started.pop(allocation_id)
        # An elastic trial is taken to be faster in proportion to its slots.
        needed = self._least[experiment_of(trial)]
        done_us = trained_us * self._slots[allocation_id] // needed if needed else trained_us
        self.work[trial] = self.work.get(trial, 0) + done_us
        if allocation_id in self._preempted:
            self.saves.append(time_us - self._preempted.pop(allocation_id))


@dataclass(frozen=True)
class Segment:
    """A slot in use."""

    agent_id: str
    slot_id: int
    start_us: int
    end_us: int
    experiment_id: int
    allocation_id: str


def segments(events: Iterable[tuple[int, EventData]], end_us: int | None = None) -> list[Segment]:
    """Times of use of each slot by each trial, from grants and releases: (time in us, event), in order. Unreleased ones are drawn
    to `end_us`, or to the last event."""
    live: dict[str, tuple[int, AllocationGranted]] = {}
    found: list[Segment] = []
    last_us = 0

    def close(item: str, until_us: int) -> None:
        since_us, grant = live.pop(item)
        for part in grant.slots:
            found.extend(
                Segment(part.agent_id, slot_id, since_us, until_us, grant.experiment_id, item) for slot_id in part.slot_ids
            )

    for time_us, data in events:
        last_us = time_us
        if isinstance(data, AllocationGranted):
            live[data.allocation_id] = (time_us, data)
        elif isinstance(data, AllocationReleased) and data.allocation_id in live:
            close(data.allocation_id, time_us)
    for item in sorted(live):
        close(item, end_us or last_us)
    return found
