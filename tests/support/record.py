"""Invariants of any recorded log, whatever was killed while it was written. Needs only the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import OWNERS
from tenuto.schemas.events.pool import AllocationGranted, AllocationReleased
from tenuto.schemas.events.run import WorkersExited, WorkersStarted, WorkersStarting
from tenuto.schemas.events.search import TrialExtended, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrialFinished, TrialProgressed, ValidationReported

ENDED = {"ExperimentCompleted", "ExperimentCanceled", "ExperimentFailed"}


def broken_rules(events: Iterable[Event]) -> list[str]:
    """One sentence per violation; an empty list for a sound record. `events` is the whole log, in order."""
    log = list(events)
    return [*_dense(log), *_owners(log), *_slots(log), *_reports(log), *_trials(log)]


def _dense(log: Sequence[Event]) -> Iterable[str]:
    versions: Counter[str] = Counter()
    ids = Counter(event.id for event in log)
    yield from (f"event {event_id} is recorded {n} times" for event_id, n in ids.items() if n > 1)
    for expected, event in enumerate(log, start=1):
        if event.position != expected:
            yield f"position {event.position} stands where {expected} should"
        versions[event.stream] += 1
        if event.version != versions[event.stream]:
            yield f"{event.stream} has version {event.version}, not {versions[event.stream]}, at {event.position}"


def _owners(log: Sequence[Event]) -> Iterable[str]:
    for event in log:
        owner = event.actor.split("/")[0].split(":")[0]
        if owner != OWNERS[event.type] and not (owner == "user" and OWNERS[event.type] == "gateway"):
            yield f"{event.type} at {event.position} was recorded by {event.actor}, not by the {OWNERS[event.type]}"


def _slots(log: Sequence[Event]) -> Iterable[str]:
    held: dict[tuple[str, int], str] = {}
    granted: set[str] = set()
    starts: Counter[tuple[str, str]] = Counter()
    exits: Counter[str] = Counter()
    for event in log:
        data = event.data
        if isinstance(data, AllocationGranted):
            if data.allocation_id in granted:
                yield f"allocation {data.allocation_id} was granted twice"
            granted.add(data.allocation_id)
            for part in data.slots:
                for slot in part.slot_ids:
                    if holder := held.get((part.agent_id, slot)):
                        yield f"slot {slot} of {part.agent_id} is in {holder} and in {data.allocation_id} at {event.position}"
                    held[part.agent_id, slot] = data.allocation_id
        elif isinstance(data, AllocationReleased):
            held = {slot: holder for slot, holder in held.items() if holder != data.allocation_id}
        elif isinstance(data, WorkersStarting | WorkersStarted):
            starts[data.allocation_id, event.type] += 1
        elif isinstance(data, WorkersExited):
            exits[data.allocation_id] += 1
    yield from (f"{kind} of {allocation} is recorded {n} times" for (allocation, kind), n in starts.items() if n > 1)
    yield from (f"WorkersExited of {allocation} is recorded {n} times" for allocation, n in exits.items() if n > 1)


def _reports(log: Sequence[Event]) -> Iterable[str]:
    released: set[str] = set()
    validations: Counter[tuple[str, int]] = Counter()
    checkpoints: Counter[str] = Counter()
    for event in log:
        data = event.data
        if isinstance(data, AllocationReleased):
            released.add(data.allocation_id)
        elif isinstance(data, ValidationReported | CheckpointSaved | TrialProgressed):
            if data.allocation_id in released:
                yield f"{event.type} of {data.allocation_id} at {event.position} came after the allocation was released"
            if isinstance(data, ValidationReported):
                validations[data.trial_id, data.batches] += 1
            elif isinstance(data, CheckpointSaved):
                checkpoints[data.checkpoint_id] += 1
    yield from (f"trial {t} has {n} validations at batch {b}" for (t, b), n in validations.items() if n > 1)
    yield from (f"checkpoint {c} is recorded {n} times" for c, n in checkpoints.items() if n > 1)


def _trials(log: Sequence[Event]) -> Iterable[str]:
    requested: dict[str, int] = {}
    stopped: set[str] = set()
    finished: Counter[str] = Counter()
    ended: set[int] = set()
    for event in log:
        data = event.data
        if isinstance(data, TrialRequested):
            if data.trial_id in requested:
                yield f"trial {data.trial_id} was requested twice"
            requested[data.trial_id] = data.experiment_id
        elif isinstance(data, TrialExtended) and data.trial_id in stopped:
            yield f"trial {data.trial_id} was extended after it was stopped (position {event.position})"
        elif isinstance(data, TrialStopped):
            if data.trial_id in stopped:
                yield f"trial {data.trial_id} was stopped twice"
            stopped.add(data.trial_id)
        elif isinstance(data, TrialFinished):
            finished[data.trial_id] += 1
        elif event.type in ENDED:
            ended.add(int(event.correlation_id))
    yield from (f"trial {t} is finished {n} times" for t, n in finished.items() if n > 1)
    for trial, experiment in requested.items():
        if experiment in ended and trial not in finished:
            yield f"experiment {experiment} ended but its trial {trial} is lost: it never finished"
