"""Histories with everything that the scheduler knows: unequal agents in two pools that lend to each other, constraints,
quotas and limits that change, slots that are closed and opened, trials that are elastic, or not preemptible, or run
longer than foretold."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.request import (
    ExperimentMoved,
    ExperimentPriorityChanged,
    ExperimentSlotLimitChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.services.scheduler.simulation.script import SimulationScript, joined, submitted
from tenuto.services.scheduler.simulation.traces import SECONDS, TraceJob, trials_of

FEATURES = (
    "unequal", "two pools", "constraints", "quotas", "limits", "closed", "rigid", "elastic", "foretold", "surprises",
    "changes",
)  # fmt: skip
"""rigid: trials that are not preemptible. surprises: some run longer than their user said. changes: of priority and place."""
CLOSED_US = 4 * 3600 * SECONDS
"""Longest time until closed slots are opened again."""
CHANGES = 6
"""Closings, and changes of each other kind, in one history."""


@dataclass(frozen=True)
class Room:
    """One agent: what matters for where a gang may be."""

    agent_id: str
    pool: str
    slots: int
    labels: tuple[str, ...]


def mixture(jobs: Iterable[TraceJob], agents: int, slots: int, seed: int, features: Iterable[str]) -> SimulationScript:
    """The jobs with these features, on about `agents` x `slots`. Each of them fits what there is when nothing is closed and the
    last change was made, so all can end."""
    draw, chosen, jobs = random.Random(seed), frozenset(features), list(jobs)
    unknown = sorted(chosen.difference(FEATURES))
    if unknown:
        raise ValueError(f"There is no feature {unknown[0]}; there are {', '.join(FEATURES)}.")
    rooms = _agents(draw, agents, slots, chosen)
    script = SimulationScript(facts=[(0, _joined(room)) for room in rooms])
    if "two pools" in chosen:
        policy = draw.choice(("priority", "fair_share", "fifo"))
        script.facts.append((0, PoolPolicyChanged.model_validate({"pool": "other", "policy": policy})))
    largest: dict[str, int] = {}
    for experiment_id, job in enumerate(jobs, 1):
        resources = _resources(draw, job, rooms, chosen)
        size = _least(resources)
        for owner in (f"user {job.user}", f"workspace {job.workspace}"):
            largest[owner] = max(largest.get(owner, 1), size)
        script.facts.append((job.arrives_us, submitted(experiment_id, job.user, **resources)))
        script.trials += trials_of(experiment_id, job)
        script.facts += _changes(draw, experiment_id, job, resources, chosen)
    last_us = max((job.arrives_us for job in jobs), default=0)
    if "quotas" in chosen:
        script.facts += _quotas(draw, largest, last_us)
    if "closed" in chosen:
        script.facts += _closings(draw, rooms, last_us)
    return script


def _agents(draw: random.Random, agents: int, slots: int, chosen: frozenset[str]) -> list[Room]:
    rooms = []
    for number in range(agents):
        pool = "other" if "two pools" in chosen and number % 3 == 2 else "default"
        size = draw.randint(1, 2 * slots) if "unequal" in chosen else slots
        labels = [f"zone={'ab'[number % 2]}"]
        if draw.random() < 0.8:  # Some do not say where they are.
            labels.append(f"rack={number // 4}")
        rooms.append(Room(f"agent-{number:04}", pool, size, tuple(labels)))
    return rooms


def _joined(room: Room) -> AgentJoined:
    return joined(room.agent_id, room.slots, room.pool, room.labels)


def _resources(draw: random.Random, job: TraceJob, rooms: list[Room], chosen: frozenset[str]) -> dict[str, Any]:
    pools = sorted({room.pool for room in rooms})
    pool = draw.choice(rooms).pool  # So that the load is about the same in both.
    resources: dict[str, Any] = {"pool": pool, "priority": job.priority, "workspace": job.workspace}
    others = [name for name in pools if name != pool]
    if others and draw.random() < 0.4:
        resources["fallback_pools"] = others
    if "constraints" in chosen and draw.random() < 0.4:
        resources["locality"] = draw.choice(("any", "agent", "rack"))
        resources["placement"] = draw.choice(("pack", "spread"))
        if draw.random() < 0.4:
            resources["agent_labels"] = [draw.choice(("zone=a", "zone=b"))]
    if not _room_for(resources, rooms):  # Nowhere in its pool: these constraints fit no agent.
        resources.pop("agent_labels")
    size = min(job.slots, _room_for(resources, rooms))
    elastic = "elastic" in chosen and size and draw.random() < 0.4
    resources["slots_per_trial"] = {"min": size, "max": size * draw.choice((2, 4)), "keep_seconds": 60} if elastic else size
    if "limits" in chosen and size and draw.random() < 0.3:
        resources["max_slots"] = size * draw.choice((1, 2, 3))
    if "rigid" in chosen and draw.random() < 0.2:
        resources["preemptible"] = False
    if "foretold" in chosen and draw.random() < 0.8:
        wrong = 0.3 if "surprises" in chosen and draw.random() < 0.2 else 1.0
        resources["expected_seconds"] = (job.work_us * 1.2 / SECONDS + 60) * wrong
    return resources


def _least(resources: dict[str, Any]) -> int:
    slots = resources["slots_per_trial"]
    return slots["min"] if isinstance(slots, dict) else int(slots)


def _room_for(resources: dict[str, Any], rooms: list[Room]) -> int:
    """Slots of the largest gang that the constraints allow in its pool."""
    asked = set(resources.get("agent_labels", ()))
    locality = resources.get("locality", "any")
    sizes: dict[str, int] = {}
    for room in rooms:
        if room.pool != resources["pool"] or not asked <= set(room.labels):
            continue
        rack = next((label for label in room.labels if label.startswith("rack=")), room.agent_id)
        key = {"any": "", "agent": room.agent_id, "rack": rack}[locality]
        sizes[key] = sizes.get(key, 0) + room.slots
    return max(sizes.values(), default=0)


def _changes(
    draw: random.Random, experiment_id: int, job: TraceJob, resources: dict[str, Any], chosen: frozenset[str]
) -> list[tuple[int, EventData]]:
    """Changes that its user makes while it waits or runs, each with its time."""
    found: list[tuple[int, EventData]] = []
    time_us = job.arrives_us + draw.randint(1, 3600 * SECONDS)
    if "changes" in chosen and draw.random() < 0.1:
        found.append((time_us, ExperimentPriorityChanged(experiment_id=experiment_id, priority=draw.choice((10, 42, 60)))))
    if "changes" in chosen and draw.random() < 0.1:
        found.append((time_us, ExperimentMoved(experiment_id=experiment_id, place=draw.random() * experiment_id)))
    if "max_slots" in resources and draw.random() < 0.2:
        limit = draw.choice((None, _least(resources), _least(resources) + 1))
        found.append((time_us, ExperimentSlotLimitChanged(experiment_id=experiment_id, max_slots=limit)))
    return found


def _quotas(draw: random.Random, largest: dict[str, int], last_us: int) -> list[tuple[int, EventData]]:
    """`largest`: slots of each owner's largest gang: less than these it has for a time only."""
    found: list[tuple[int, EventData]] = []
    for owner in sorted(largest):
        if draw.random() < 0.5:
            continue
        for _ in range(draw.randint(0, CHANGES)):
            quota = draw.choice((None, 1, largest[owner], 2 * largest[owner]))
            found.append((draw.randint(0, last_us), _quota(owner, quota)))
        found.append((last_us, _quota(owner, draw.choice((None, largest[owner], 4 * largest[owner])))))
    return sorted(found, key=lambda item: item[0])


def _quota(owner: str, most: int | None) -> ShareChanged:
    kind, name = owner.split()
    return ShareChanged.model_validate({"owner": kind, "name": name, "max_slots": most})


def _closings(draw: random.Random, rooms: list[Room], last_us: int) -> list[tuple[int, EventData]]:
    found: list[tuple[int, EventData]] = []
    for _ in range(CHANGES):
        room, time_us = draw.choice(rooms), draw.randint(0, last_us)
        slot = draw.choice((None, *range(room.slots)))
        found.append((time_us, SlotsClosed(agent_id=room.agent_id, slot_id=slot, drain=draw.random() < 0.5)))
        found.append((time_us + draw.randint(1, CLOSED_US), SlotsOpened(agent_id=room.agent_id)))
    return found
