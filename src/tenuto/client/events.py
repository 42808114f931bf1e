"""An event of the record, as programs read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ENDED = {"ExperimentCompleted": "completed", "ExperimentFailed": "failed", "ExperimentCanceled": "canceled"}
"""Events with which an experiment ends -> its state then."""


@dataclass(frozen=True)
class Event:
    """An event of the record, as the client gives it."""

    position: int
    """Position in the log, from 1 on: go on behind the last one that you have handled, and none is missed or seen twice."""
    id: str
    """Id of the event: a UUID."""
    type: str
    """Name of its class, such as ExperimentCompleted."""
    stream: str
    """Stream in which it is recorded, such as that of one experiment for one service."""
    version: int
    """Version in its stream, from 1 on."""
    time_us: int
    """Microseconds since 1970-01-01 UTC."""
    actor: str
    """Service or user that caused it."""
    data: dict[str, Any]
    """Payload; docs/reference/events.schema.json has the fields of each type."""
    sentence: str
    """Reason of the decision, for people; empty if nothing was decided."""
    experiment_id: int | None
    """Experiment that it is about; None: none."""
    causation_id: str | None
    """Id of the event that caused this one."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Event:
        """Event from the form in which REST and SSE give it (`told`)."""
        correlation = str(told.get("correlation_id", ""))
        return cls(
            position=told["position"],
            id=told["id"],
            type=told["type"],
            stream=told["stream"],
            version=told["version"],
            time_us=told["time_us"],
            actor=told["actor"],
            data=told["data"],
            sentence=told.get("sentence", ""),
            experiment_id=int(correlation) if correlation.isdecimal() else None,
            causation_id=told.get("causation_id"),
        )
