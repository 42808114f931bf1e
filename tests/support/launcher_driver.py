"""The launcher's core with one experiment, its agents and their reports."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tenuto.kernel.decision import step
from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationPreempted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.ids import allocation_id, name_id, trial_id
from tenuto.schemas.reports import WorkersExitedReport, WorkersStartedReport, WorkersStartingReport
from tenuto.services.launcher.commands import RecordHeartbeat, RecordRunReport
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.effects.assigning import assignments_of

WHY = Reason(rule="test")


CONFIG = ExperimentConfig.model_validate(
    {
        "name": "t",
        "entrypoint": "m:T",
        "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}, "layers": [1, 2]},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
    }
)


class Driver:
    """The log and one launcher that reads it: folds and decides in the order of the service loop."""

    def __init__(self, trials: int = 1) -> None:
        self.core = LauncherCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.commands = 0
        self.event(ExperimentSubmitted(experiment_id=1, config=CONFIG, seed=5, context_hash="c", context_size_bytes=1, user="u"))
        for number in range(1, trials + 1):
            self.event(
                TrialRequested(
                    experiment_id=1, trial_id=trial_id(1, number), trial_number=number, hyperparameters={"lr": 0.1}, seed=number,
                    target_length=10, reason=WHY,
                )
            )  # fmt: skip

    def event(self, data: EventData, trace: str = "") -> list[EventData]:
        position = len(self.log) + 1
        event = Event(
            id=name_id("input", str(position)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION, time_us=0,
            payload=data.to_json(), actor="test/1", trace=trace, position=position,
        )  # fmt: skip
        self.log.append(event)
        self.state = self.core.evolve(self.state, event)
        return self._settle(event, position)

    def command(self, kind: Any, *fields: Any, id: UUID | None = None, time_us: int = 0) -> list[EventData]:
        self.commands += 1
        return self._settle(kind(id or name_id("command", str(self.commands)), time_us, *fields), len(self.log))

    def _settle(self, cause: Any, seen: int) -> list[EventData]:
        # Own events stand in the log too: the next input comes after them.
        self.state, decided = step(self.core, self.state, cause, seen_position=seen, time_us=0)
        for event in decided:
            self.log.append(event.recorded(len(self.log) + 1, 1))
        self.core.check(self.state)
        return [event.data for event in decided]

    def join(
        self, agent: str = "a", slots: int = 2, has: tuple[str, ...] = (), fresh: bool = True, **said: Any
    ) -> list[EventData]:
        offered = tuple(Slot(slot_id=number, kind="cpu", device="cpu") for number in range(slots))
        beat = Heartbeat(
            agent_id=agent,
            spool_id="s",
            pool="default",
            host="h",
            version="1",
            slots=offered,
            allocations=has,
            launcher_sequence=1,
            **said,
        )
        return self.command(RecordHeartbeat, beat, fresh)

    def grant(self, trial: int = 1, number: int = 1, slots: dict[str, tuple[int, ...]] | None = None) -> list[EventData]:
        name = trial_id(1, trial)
        parts = tuple(AgentSlots(agent_id=agent, slot_ids=ids) for agent, ids in (slots or {"a": (0,)}).items())
        return self.event(
            AllocationGranted(
                pool="default", allocation_id=allocation_id(name, number), trial_id=name, experiment_id=1, slots=parts, reason=WHY
            ),
            trace="00-trace",
        )

    def starting(self, allocation: str = "1-1-1", agent: str = "a") -> list[EventData]:
        return self.command(
            RecordRunReport, WorkersStartingReport(trial_id=allocation[:3], allocation_id=allocation, agent_id=agent)
        )

    def started(self, allocation: str = "1-1-1", agent: str = "a") -> list[EventData]:
        return self.command(
            RecordRunReport, WorkersStartedReport(trial_id=allocation[:3], allocation_id=allocation, agent_id=agent)
        )

    def exited(
        self,
        outcome: Any,
        code: int | None = None,
        allocation: str = "1-1-1",
        agent: str = "a",
        followed: bool = False,
        cause: Any = None,
        error: str | None = None,
    ) -> list[EventData]:
        report = WorkersExitedReport(
            trial_id=allocation[:3],
            allocation_id=allocation,
            agent_id=agent,
            outcome=outcome,
            exit_code=code,
            error=error,
            followed=followed,
            cause=cause,
        )
        return self.command(RecordRunReport, report)

    def action(self, agent: str = "a") -> str:
        [assignment] = assignments_of(self.state, agent, 0).assignments
        return assignment.action


def only(decided: list[EventData], kind: type[Any]) -> Any:
    [event] = decided
    assert isinstance(event, kind)
    return event


def preempted(kill: bool = False, allocation: str = "1-1-1") -> AllocationPreempted:
    return AllocationPreempted(pool="default", allocation_id=allocation, trial_id="1-1", experiment_id=1, kill=kill, reason=WHY)


STOPPED = TrialStopped(experiment_id=1, trial_id="1-1", outcome="completed", reason=WHY)


PAUSED = TrialPaused(experiment_id=1, trial_id="1-1", reason=WHY)
