"""The tracker's core with a trial on one allocation after another, and the reports that its workers send."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.ids import derived_event_id, name_id
from tenuto.schemas.reports import CheckpointReport, ProgressReport, TrainingEndedReport, ValidationReport
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.core import TrackerCore

WHY = Reason(rule="test")


SLOTS = (AgentSlots(agent_id="a", slot_ids=(0,)),)


class Driver:
    """Folds inputs and decisions in the order in which the service loop does."""

    def __init__(self, **config: Any) -> None:
        self.core = TrackerCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.count = 0
        self.allocations = 0
        defaults: dict[str, Any] = {
            "name": "t",
            "entrypoint": "m:T",
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
        }
        submitted = ExperimentSubmitted(
            experiment_id=1,
            config=ExperimentConfig.model_validate(defaults | config),
            seed=1,
            context_hash="",
            context_size_bytes=0,
            user="u",
        )
        self.event(submitted)
        self.event(
            TrialRequested(
                experiment_id=1, trial_id="1-1", trial_number=1, hyperparameters={}, seed=1, target_length=100, reason=WHY
            )
        )

    def _wrap(self, data: EventData, id: UUID) -> Event:
        return Event(
            id=id, stream=data.stream(), type=data.TYPE, schema_version=data.VERSION, time_us=0, payload=data.to_json(), actor="t"
        )

    def event(self, data: EventData) -> list[EventData]:
        self.count += 1
        event = self._wrap(data, name_id("input", str(self.count)))
        self.log.append(event)
        self.state = self.core.evolve(self.state, event)
        return self._decided(event)

    def report(self, report: Any, id: UUID | None = None) -> list[EventData]:
        self.count += 1
        return self._decided(RecordTrialReport(id or name_id("report", str(self.count)), 0, report))

    def _decided(self, cause: Any) -> list[EventData]:
        drafts = list(self.core.decide(self.state, cause))
        for index, draft in enumerate(drafts):
            event = self._wrap(draft, derived_event_id("tracker", cause.id, index))
            self.log.append(event)
            self.state = self.core.evolve(self.state, event)
            assert draft.TYPE in self.core.emits
            assert self.core.correlation_id(self.state, draft) == "1"
        self.core.check(self.state)
        return drafts

    def grant(self) -> str:
        self.allocations += 1
        allocation = f"1-1-{self.allocations}"
        self.event(
            AllocationGranted(pool="default", allocation_id=allocation, trial_id="1-1", experiment_id=1, slots=SLOTS, reason=WHY)
        )
        return allocation

    def release(self, allocation: str) -> list[EventData]:
        return self.event(
            AllocationReleased(pool="default", allocation_id=allocation, trial_id="1-1", experiment_id=1, reason=WHY)
        )

    def exit(
        self, allocation: str, outcome: Any, error: str | None = None, code: int | None = 1, cause: Any = None
    ) -> list[EventData]:
        return self.event(
            WorkersExited(allocation_id=allocation, trial_id="1-1", outcome=outcome, exit_code=code, error=error, cause=cause)
        )

    def stop(self) -> list[EventData]:
        return self.event(TrialStopped(experiment_id=1, trial_id="1-1", outcome="completed", reason=WHY))


def validation(allocation: str, batches: int, loss: float = 1.0) -> ValidationReport:
    return ValidationReport(trial_id="1-1", allocation_id=allocation, batches=batches, length=batches, metrics={"loss": loss})


def training_ended(allocation: str, batches: int, said: str = "early stopping") -> TrainingEndedReport:
    return TrainingEndedReport(trial_id="1-1", allocation_id=allocation, batches=batches, length=batches, said=said)


def checkpoint(allocation: str, batches: int, name: str = "") -> CheckpointReport:
    return CheckpointReport(
        trial_id="1-1",
        allocation_id=allocation,
        checkpoint_id=name or f"c{batches}",
        batches=batches,
        length=batches,
        files=(),
        size_bytes=1,
    )


def progress(allocation: str, batches: int) -> ProgressReport:
    return ProgressReport(trial_id="1-1", allocation_id=allocation, batches=batches, length=batches)


def types(events: list[EventData]) -> list[str]:
    return [event.TYPE for event in events]
