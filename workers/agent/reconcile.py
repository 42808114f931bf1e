"""Reconciliation: the steps by which the agent's runs become those that the launcher assigned. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.events.run import WorkersOutcome
from tenuto.workers.agent.local_ranks import slots_on
from tenuto.workers.agent.runs import RunRecord


@dataclass(frozen=True)
class Start:
    assignment: Assignment


@dataclass(frozen=True)
class Refuse:
    """The run must leave before it started: its exit is reported without a process."""

    assignment: Assignment
    outcome: WorkersOutcome


@dataclass(frozen=True)
class Direct:
    """Tell the workers of a run their new directive."""

    assignment: Assignment


@dataclass(frozen=True)
class Kill:
    allocation_id: str
    action: Action
    """Directive that the workers had before; it decides the outcome."""


Step = Start | Refuse | Direct | Kill
OUTCOME_OF_LEAVING: dict[Action, WorkersOutcome] = {
    "run": "lost",
    "preempt": "preempted",
    "stop": "finished",
    "pause": "paused",
    "kill": "lost",
}
"""Outcome of a run whose workers are gone without an exit code, by their last directive."""


def reconcile(agent_id: str, runs: Iterable[RunRecord], assigned: Sequence[Assignment]) -> list[Step]:
    """Steps in the order to take them: kills first, then directives, then starts in the order assigned.

    A start whose slots are still held by another run is left for the next call (after that run has ended). A run that has ended,
    or is done, is never started again.
    """
    known = {run.allocation_id: run for run in runs}
    wanted = {assignment.allocation_id: assignment for assignment in assigned}
    kills: list[Step] = []
    directions: list[Step] = []
    starts: list[Step] = []
    for run in known.values():
        if not run.holds_slots:
            continue
        assignment = wanted.get(run.allocation_id)
        if assignment is None:
            kills.append(Kill(run.allocation_id, run.assignment.action))
        elif assignment.action == "kill":
            kills.append(Kill(run.allocation_id, "kill"))
        elif _told(assignment) != _told(run.assignment):
            # All other fields, such as the checkpoint it resumed from, keep their values of the start.
            update = dict(zip(CHANGING, _told(assignment), strict=True))
            directions.append(Direct(run.assignment.model_copy(update=update)))
    busy = {slot for run in known.values() if run.holds_slots for slot in slots_on(run.assignment, agent_id)}
    for assignment in assigned:
        if assignment.allocation_id in known:
            continue
        if assignment.action != "run":
            starts.append(Refuse(assignment, OUTCOME_OF_LEAVING[assignment.action]))
            continue
        slots = slots_on(assignment, agent_id)
        if busy.isdisjoint(slots):
            busy.update(slots)
            starts.append(Start(assignment))
    return [*kills, *directions, *starts]


CHANGING = ("action", "target_length", "rendezvous")
"""Fields of an assignment that may change while its workers run."""


def _told(assignment: Assignment) -> tuple[object, ...]:
    return tuple(getattr(assignment, name) for name in CHANGING)
