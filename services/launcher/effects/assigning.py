"""Assignments of each agent, computed from the launcher's state. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.schemas.assignments import Action, Assignment, Assignments
from tenuto.schemas.config.environment import AllowedMount
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, AllocationResized
from tenuto.schemas.events.request import ExperimentCancelRequested
from tenuto.schemas.events.run import GangPartReported, GangRendezvousOpened
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.record import KnownData
from tenuto.services.launcher.state import Allocation, Experiment, State, Trial


def assignments_of(state: State, agent_id: str, position: int) -> Assignments:
    """All of one agent's, in the order of their ids."""
    found = []
    agent = state.agents.get(agent_id)
    mounts = state.pool_mounts.get(agent.pool) if agent is not None else None
    for allocation_id in state.on_agent.get(agent_id, ()):
        assignment = _assignment(state, state.allocations[allocation_id], mounts)
        if assignment is not None:
            found.append(assignment)
    return Assignments(position=position, assignments=tuple(found))


def secrets_of(assignments: Assignments) -> list[str]:
    """References to the secrets that they name."""
    return sorted({reference for item in assignments.assignments for reference in item.config.environment.secret_references})


def agents_concerned(state: State, events: Iterable[Event]) -> list[str]:
    """The agents whose assignments these folded events may have changed, sorted. `state` has them folded in."""
    agents: set[str] = set()
    for event in events:
        data = event.data
        if isinstance(data, AllocationGranted):
            agents.update(part.agent_id for part in data.slots)
        elif isinstance(data, (AllocationPreempted, AllocationResized, GangPartReported, GangRendezvousOpened)):
            agents.update(_agents_of(state, (data.allocation_id,)))
        elif isinstance(data, (TrialExtended, TrialPaused, TrialStopped)):
            agents.update(_agents_of(state, state.of_trial.get(data.trial_id, ())))
        elif isinstance(data, ExperimentCancelRequested) and data.experiment_id in state.experiments:
            for trial_id in sorted(state.experiments[data.experiment_id].trials):
                agents.update(_agents_of(state, state.of_trial.get(trial_id, ())))
    return sorted(agents)


def _agents_of(state: State, allocation_ids: Iterable[str]) -> Iterable[str]:
    for allocation_id in allocation_ids:
        allocation = state.allocations.get(allocation_id)
        if allocation is not None:
            yield from (part.agent_id for part in allocation.parts if part.running)


def _assignment(state: State, allocation: Allocation, mounts: tuple[AllowedMount, ...] | None) -> Assignment | None:
    """`mounts`: what the agent's pool allows. None where the trial is not live any more: what an agent is not assigned, it
    kills."""
    experiment = state.experiments.get(allocation.experiment_id)
    trial = state.trial(allocation.trial_id)
    if experiment is None or trial is None:
        return None
    return Assignment(
        allocation_id=allocation.allocation_id,
        trial_id=trial.trial_id,
        trial_number=trial.number,
        experiment_id=experiment.experiment_id,
        config=experiment.config,
        context_hash=experiment.context_hash,
        hyperparameters=trial.hyperparameters,
        trial_seed=trial.seed,
        experiment_seed=experiment.seed,
        slots=allocation.slots,
        checkpoint=trial.checkpoint,
        earlier_checkpoints=trial.earlier,
        target_length=trial.target_length,
        action=action_of(state, allocation),
        trace=allocation.trace,
        known_data=known_data(experiment, trial),
        rendezvous=allocation.rendezvous,
        mounts_allowed=mounts,
        known_environment=trial.environment_hash,
    )


def known_data(experiment: Experiment, trial: Trial) -> tuple[KnownData, ...]:
    """Records of declared data by name: the trial's own ones, and its experiment's for names that it has not recorded."""
    names = {item.name: item for item in (*experiment.data, *trial.data)}
    return tuple(names[name] for name in sorted(names))


def action_of(state: State, allocation: Allocation) -> Action:
    """The strongest of what is asked: kill, stop, preempt, pause, run."""
    experiment = state.experiments.get(allocation.experiment_id)
    trial = state.trial(allocation.trial_id)
    # A gang with a broken part cannot go on, so the parts that still run are killed.
    if experiment is None or trial is None or experiment.kill or allocation.kill or allocation.first_exit:
        return "kill"
    if trial.phase == "stopped":
        return "preempt" if trial.canceled else "stop"
    if allocation.preempted:
        return "preempt"
    if trial.phase == "paused":
        return "pause"
    return "run"
