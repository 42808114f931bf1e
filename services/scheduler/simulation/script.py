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
from tenuto.schemas.events.agent import Agent as AgentData
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationReleased, AllocationResized
from tenuto.schemas.events.request import ClusterRequest, ExperimentSubmitted, PoolPolicyChanged, Request
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
class Script:
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


def recorded(events: Iterable[Event], *, policies: bool = False) -> Script:
    """A cluster's history as a script, from its log alone. A trial arrives when the search asked for it, and its work is the
    time that its workers trained. What the search would have asked for had the trials ended in another order is not known.

    Trials that never ran are left out, and so are those that had not stopped at the end of the log (their work is unknown).
    `policies`: those of the pools are facts of the script, too."""
    script = Script()
    asked: dict[str, tuple[int, TrialRequested]] = {}
    started: dict[str, int] = {}
    work: dict[str, int] = {}
    stopped: set[str] = set()
    granted: dict[str, int] = {}
    slots: dict[str, int] = {}
    least: dict[int, int] = {}
    preempted: dict[str, int] = {}
    startups: list[int] = []
    saves: list[int] = []
    for event in events:
        data = event.data
        if isinstance(data, ExperimentSubmitted):
            least[data.experiment_id] = data.config.resources.slots_min
        if isinstance(data, PoolPolicyChanged) and not policies:
            continue
        if isinstance(data, Request | ClusterRequest | AgentData):
            script.facts.append((event.time_us, data))
        elif isinstance(data, TrialRequested):
            asked[data.trial_id] = (event.time_us, data)
        elif isinstance(data, TrialStopped):
            stopped.add(data.trial_id)
        elif isinstance(data, AllocationGranted):
            granted[data.allocation_id] = event.time_us
            slots[data.allocation_id] = sum(len(part.slot_ids) for part in data.slots)
        elif isinstance(data, (AllocationPreempted, AllocationResized)):
            preempted[data.allocation_id] = event.time_us
        elif isinstance(data, WorkersStarted):
            started[data.allocation_id] = event.time_us
            startups.append(event.time_us - granted.pop(data.allocation_id, event.time_us))
        elif isinstance(data, WorkersExited) and data.allocation_id in started:
            trial = trial_of(data.allocation_id)
            trained_us = event.time_us - started.pop(data.allocation_id)
            # An elastic trial is taken to be faster in proportion to its slots.
            needed = least[experiment_of(trial)]
            done_us = trained_us * slots[data.allocation_id] // needed if needed else trained_us
            work[trial] = work.get(trial, 0) + done_us
            if data.allocation_id in preempted:
                saves.append(event.time_us - preempted.pop(data.allocation_id))
    script.startup_us = round(median(startups)) if startups else None
    script.save_us = round(median(saves)) if saves else None
    for trial_id, (time_us, data) in asked.items():
        if work.get(trial_id) and trial_id in stopped:
            script.trials.append(TrialScript(trial_id, data.experiment_id, data.trial_number, time_us, work[trial_id]))
    return script


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
