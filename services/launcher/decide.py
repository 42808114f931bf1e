"""Decisions of the launcher: agents that join and are lost, the start and end of each allocation's workers, and nodes that come
and go (`policies/provisioning`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenuto.kernel.core import Command
from tenuto.kernel.decision_tables import decisions, nothing
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost, Offer
from tenuto.schemas.events.joining import AgentRevoked
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import ExperimentResumeRequested
from tenuto.schemas.events.run import (
    Cause,
    GangPartReported,
    GangRendezvousOpened,
    RestartPauseEnded,
    WorkersExited,
    WorkersOutcome,
    WorkersStarted,
    WorkersStarting,
)
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.reports import RendezvousReport, WorkersExitedReport, WorkersStartingReport
from tenuto.services.launcher.commands import EndRestartPauses, ExpireLease, RecordHeartbeat, RecordRunReport
from tenuto.services.launcher.policies.membership import refusal
from tenuto.services.launcher.policies.provisioning import decisions as provisioning
from tenuto.services.launcher.policies.provisioning.nodes import agents_lost
from tenuto.services.launcher.state import Allocation, Part, State
from tenuto.services.launcher.state.leaving import says_it_ends, was_asked
from tenuto.services.launcher.state.restarts import after, pause_of

OFFERED = tuple(Offer.model_fields)
"""Fields of an agent's offer. If one of them changes, the agent joins again."""
BROKEN = ("failed", "lost")
"""Outcomes of a part that ends the others."""


def decide(state: State, cause: Event | Command) -> Sequence[EventData]:
    if isinstance(cause, Event):
        found = EVENTS.get(type(cause.data), nothing)(state, cause.data, cause.time_us)
    else:
        found = COMMANDS.get(type(cause), nothing)(state, cause)
    decided = [_with_pause(state, data, cause.time_us) for data in found]
    return [*decided, *agents_lost(state, decided, cause.time_us)] if state.pools else decided


def _with_pause(state: State, data: EventData, time_us: int) -> EventData:
    """The exit with how long its trial waits before it starts again."""
    trial = state.trial(data.trial_id) if isinstance(data, WorkersExited) else None
    if trial is None or not isinstance(data, WorkersExited) or data.outcome == "finished" or trial.phase == "stopped":
        return data
    allocation = state.allocations[data.allocation_id]
    asked = was_asked(trial, allocation)
    standstill = after(trial.standstill, data.outcome, asked=asked, advanced=allocation.advanced)
    setbacks, pause = pause_of(standstill, data.outcome, asked=asked)
    if not pause or data.cause == "invalid_hyperparameters":  # which starting again does not change
        return data
    return data.model_copy(update={"setbacks": setbacks, "restart_at_us": time_us + round(pause * 1e6)})


def end_pauses(state: State, command: EndRestartPauses) -> Sequence[EventData]:
    return _start_again(state, [trial_id for trial_id in sorted(state.pauses) if state.pauses[trial_id] <= command.time_us])


def resumed(state: State, data: ExperimentResumeRequested, time_us: int) -> Sequence[EventData]:
    """A user has looked at it: its trials start at once. That is said, and does not follow from the request alone, because the
    request may stand in the log before an exit that was decided on without it."""
    return _start_again(state, [item for item in sorted(state.pauses) if experiment_of(item) == data.experiment_id])


def _start_again(state: State, trial_ids: Sequence[str]) -> Sequence[EventData]:
    trials = [trial for trial_id in trial_ids if (trial := state.trial(trial_id)) is not None]
    return [RestartPauseEnded(allocation_id=trial.pause_of, trial_id=trial.trial_id) for trial in trials]


def revoked(state: State, data: AgentRevoked, time_us: int) -> Sequence[EventData]:
    return _gone(state, data.agent_id, "it was revoked")


def expire(state: State, command: ExpireLease) -> Sequence[EventData]:
    # Its last word may be lost: the link or the launcher was down in its last seconds, or its machine was taken.
    return _gone(state, command.agent_id, command.reason, announced=says_it_ends(state, command.agent_id))


def granted(state: State, data: AllocationGranted, time_us: int) -> Sequence[EventData]:
    """An allocation that must not or cannot start ends at once, so that its slots are free again."""
    allocation = state.allocations[data.allocation_id]
    trial = state.trial(data.trial_id)
    experiment = state.experiments.get(data.experiment_id)
    if trial is None or experiment is None or trial.phase == "stopped" or experiment.kill:
        return [_whole(allocation, "finished", "the trial was over before its workers started")]
    if trial.phase == "paused":
        return [_whole(allocation, "paused", "the trial was paused before its workers started")]
    for part in data.slots:
        agent = state.agents.get(part.agent_id)
        if agent is None:
            return [_whole(allocation, "lost", f"agent {part.agent_id} was gone before the workers started")]
        offered = {slot.slot_id for slot in agent.slots}
        missing = [slot_id for slot_id in part.slot_ids if slot_id not in offered]
        if missing:
            return [_whole(allocation, "lost", f"agent {part.agent_id} does not offer slot {missing[0]} any more")]
    return ()


def record(state: State, command: RecordRunReport) -> Sequence[EventData]:
    """A report that was recorded before, or of an allocation that is over, decides nothing."""
    report = command.report
    allocation = state.allocations.get(report.allocation_id)
    part = allocation.part(report.agent_id) if allocation else None
    if allocation is None or part is None or not part.running:
        return ()
    if isinstance(report, WorkersExitedReport):
        return _part_exited(
            state, allocation, part, report.outcome, report.exit_code, report.error, report.cause, followed=report.followed
        )
    if isinstance(report, RendezvousReport):
        return _rendezvous(allocation, part, report)
    agent_ids = tuple(item.agent_id for item in allocation.parts)
    starting = WorkersStarting(allocation_id=allocation.allocation_id, trial_id=allocation.trial_id, agent_ids=agent_ids)
    before: list[EventData] = [] if allocation.starting else [starting]
    if isinstance(report, WorkersStartingReport):
        return before
    if allocation.started or part.started:
        return ()
    if all(item.started for item in allocation.parts if item is not part):
        return [
            *before,
            WorkersStarted(allocation_id=allocation.allocation_id, trial_id=allocation.trial_id, agent_ids=agent_ids),
        ]
    return [*before, _part_event(allocation, replace(part, started=True), "started")]


def _rendezvous(allocation: Allocation, part: Part, report: RendezvousReport) -> Sequence[EventData]:
    """Rank 0's agent says it once per allocation."""
    if allocation.rendezvous or part is not allocation.parts[0]:
        return ()
    return [
        GangRendezvousOpened(
            allocation_id=allocation.allocation_id,
            trial_id=allocation.trial_id,
            agent_id=part.agent_id,
            address=report.address,
        )
    ]


def hear(state: State, command: RecordHeartbeat) -> Sequence[EventData]:
    heartbeat, fresh = command.heartbeat, command.fresh
    decided: list[EventData] = []
    agent = state.agents.get(heartbeat.agent_id)
    if refusal(state, heartbeat.agent_id, heartbeat.pool):
        return ()  # what it ran is lost with its lease, or was when it was revoked
    if heartbeat.gone:
        return _gone(state, heartbeat.agent_id, "its time was over", announced=True)
    if agent is None or any(getattr(agent, name) != getattr(heartbeat, name) for name in OFFERED):
        # Before the exits below: the scheduler must not hand out again slots that are not there.
        decided.append(AgentJoined(agent_id=heartbeat.agent_id, **{name: getattr(heartbeat, name) for name in OFFERED}))
    offered = {slot.slot_id for slot in heartbeat.slots}
    for allocation_id in state.on_agent.get(heartbeat.agent_id, ()):
        allocation = state.allocations[allocation_id]
        part = allocation.part(heartbeat.agent_id)
        assert part is not None
        held = [slot_id for item in allocation.slots if item.agent_id == heartbeat.agent_id for slot_id in item.slot_ids]
        if not all(slot_id in offered for slot_id in held):
            error = f"agent {heartbeat.agent_id} does not offer its slots any more"
        # A heartbeat older than a report that has arrived may not list workers that the report says have started.
        elif fresh and (part.started or allocation.started) and allocation_id not in heartbeat.allocations:
            error = f"agent {heartbeat.agent_id} has no trace of its workers"
        else:
            continue
        decided.extend(_part_exited(state, allocation, part, "lost", None, error))
    return decided


def _gone(state: State, agent_id: str, reason: str, *, announced: bool = False) -> Sequence[EventData]:
    if agent_id not in state.agents:
        return ()
    # AgentLost comes first: the scheduler must not grant slots of an agent that is gone.
    decided: list[EventData] = [AgentLost(agent_id=agent_id, reason=reason, announced=announced)]
    for allocation_id in state.on_agent.get(agent_id, ()):
        allocation = state.allocations[allocation_id]
        part = allocation.part(agent_id)
        assert part is not None
        error = f"agent {agent_id} was lost: {reason}"
        decided.extend(_part_exited(state, allocation, part, "lost", None, error))
    return decided


def _part_exited(
    state: State,
    allocation: Allocation,
    part: Part,
    outcome: WorkersOutcome,
    exit_code: int | None,
    error: str | None,
    cause: Cause | None = None,
    *,
    followed: bool = False,
) -> list[EventData]:
    outcome, error = _judge(state, allocation, outcome, exit_code, error)
    gone = replace(part, outcome=outcome, exit_code=exit_code, error=error, cause=cause if outcome in BROKEN else None)
    others = [item for item in allocation.parts if item.agent_id != part.agent_id]
    if any(item.running for item in others):
        return [_part_event(allocation, gone, "exited", followed=followed)]
    # The part that broke first speaks for all; the others only followed it.
    first = allocation.part(allocation.first_exit) if allocation.first_exit else None
    if first is not None and allocation.first_followed and outcome in BROKEN and not followed:
        first = None
    told = first or gone
    assert told.outcome is not None
    return [_whole(allocation, told.outcome, told.error, told.exit_code, told.cause)]


def _judge(
    state: State, allocation: Allocation, outcome: WorkersOutcome, exit_code: int | None, error: str | None
) -> tuple[WorkersOutcome, str | None]:
    """The agent knows how its processes ended; the launcher knows what was asked of them."""
    trial = state.trial(allocation.trial_id)
    experiment = state.experiments.get(allocation.experiment_id)
    if trial is None or experiment is None or trial.phase == "stopped" or experiment.kill:
        return "finished", error
    if outcome == "finished":
        return "failed", error or (
            f"The training process ended by itself (exit code {exit_code}) although its trial was not over. "
            "Does the code leave with sys.exit() or os._exit()?"
        )
    # The preemption itself asked for the kill, so it is no loss.
    if outcome == "lost" and allocation.kill:
        return "preempted", error
    return outcome, error


def _part_event(allocation: Allocation, part: Part, step: str, *, followed: bool = False) -> GangPartReported:
    return GangPartReported(
        allocation_id=allocation.allocation_id,
        trial_id=allocation.trial_id,
        agent_id=part.agent_id,
        step="started" if step == "started" else "exited",
        outcome=part.outcome,
        exit_code=part.exit_code,
        error=part.error,
        followed=followed,
        cause=part.cause,
    )


def _whole(
    allocation: Allocation,
    outcome: WorkersOutcome,
    error: str | None = None,
    exit_code: int | None = None,
    cause: Cause | None = None,
) -> WorkersExited:
    return WorkersExited(
        allocation_id=allocation.allocation_id,
        trial_id=allocation.trial_id,
        outcome=outcome,
        exit_code=exit_code,
        error=error,
        cause=cause,
    )


COMMANDS = decisions(record, hear, expire, end_pauses, provisioning.on_look, provisioning.on_tick)
EVENTS = decisions(granted, resumed, revoked, provisioning.on_event, parameter="data")
"""Called with the event folded in, and its time."""
