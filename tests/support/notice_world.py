"""The gateway's part in notices, without a log: events and commands go in, what is decided comes out and is folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from tenuto.kernel.core import Command
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.notice import WebhookTriggered
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCompleted, ExperimentFailed
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.sentences import sentence
from tenuto.schemas.webhooks import (
    Filters,
    Trigger,
)
from tenuto.services.gateway.decide import decide
from tenuto.services.gateway.notices import state as notice_state
from tenuto.services.gateway.notices.commands import CreateWebhook, NoteDelivery, TellWaits
from tenuto.services.gateway.notices.decide.triggered_notices import follow
from tenuto.services.gateway.notices.evolve import fold
from tenuto.services.gateway.notices.state import Notices
from tenuto.services.gateway.state import State

ID = UUID(int=7)
SECOND_US = 1_000_000


class World:
    """The gateway's part of it, with one webhook."""

    def __init__(self, *triggers: Trigger, **settings: Any) -> None:
        self.notices, self.time_us, self.count = Notices(), 1_000 * SECOND_US, 0
        if triggers:
            self.make("hook", *triggers, **settings)

    def make(self, name: str, *triggers: Trigger, user: str = "ada", kind: str = "http", **settings: Any) -> None:
        values: dict[str, Any] = {"filters": Filters(), "group_seconds": 0.0, "recoveries": False, "sealed_id": "s"} | settings
        self.ask(CreateWebhook, name=name, user=user, kind=kind, place="https://example.com", triggers=triggers, **values)

    def fold(self, data: EventData) -> None:
        self.notices = fold(self.notices, type(data).from_json(data.to_json()), self.time_us)

    def happens(self, data: EventData) -> list[Any]:
        """Folds an event of another service and what is decided on it; returns that."""
        self.count += 1
        self.time_us += SECOND_US
        self.fold(data)
        event = Event(
            id=uuid5(ID, str(self.count)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self.time_us, payload=data.to_json(), actor="test/1", correlation_id="", causation_id=None,
            seen_position=0, trace="",
        )  # fmt: skip
        found = follow(self.notices, event.data, event.time_us)
        for item in found:
            self.fold(item)
        return found

    def ask(self, order: Any, **fields: Any) -> Sequence[EventData]:
        self.count += 1
        if order not in (NoteDelivery, TellWaits):
            fields.setdefault("user", "ada")
        command: Command = order(id=uuid5(ID, str(self.count)), time_us=self.time_us, **fields)
        found = decide(State(notices=self.notices), command)
        for item in found:
            self.fold(item)
        return found

    def note(self, outcome: str, *numbers: int, **fields: Any) -> Sequence[EventData]:
        created_us = self.hook.created_us
        fields = {"attempts": 1, "answer": "HTTP 500", "created_us": created_us} | fields
        return self.ask(NoteDelivery, webhook="hook", numbers=numbers, outcome=outcome, **fields)

    @property
    def hook(self) -> notice_state.Webhook:
        return self.notices.webhooks["hook"]


def submitted(
    experiment_id: int = 3, user: str = "ada", labels: Sequence[str] = (), workspace: str = "default", **searcher: Any
) -> ExperimentSubmitted:
    config = ExperimentConfig(
        entrypoint="model_def:Trial",
        labels=list(labels),
        resources={"workspace": workspace},
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 100}} | searcher,
    )
    return ExperimentSubmitted(
        experiment_id=experiment_id, config=config, seed=1, context_hash="0" * 64, context_size_bytes=1, user=user
    )


def validated(value: float, trial: str = "3-1", name: str = "loss") -> ValidationReported:
    return ValidationReported(trial_id=trial, allocation_id=f"{trial}-1", batches=10, length=10, metrics={name: value})


FAILED = ExperimentFailed(experiment_id=3, error="no", trials=4)
COMPLETED = ExperimentCompleted(experiment_id=3, best_trial_id="3-1", best_metric=0.5, trials=4, reason=Reason(rule="x"))
LOST = AgentLost(agent_id="node-1", reason="no heartbeat for 10 s")


def said(event: WebhookTriggered) -> str:
    return sentence(event.TYPE, event.model_dump(mode="json"), "gateway/4")
