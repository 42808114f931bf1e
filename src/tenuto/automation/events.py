"""Events as rules get them, each with its payload as a typed model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.registry import parse
from tenuto.schemas.sentences import sentence

D = TypeVar("D", bound=EventData)


@dataclass(frozen=True)
class Event(Generic[D]):
    """An event of the record, as a rule gets it."""

    position: int
    """Position in the log, from 1 on."""
    id: str
    """Id of the event: a UUID."""
    type: str
    """Name of its class, such as ExperimentCompleted."""
    time_us: int
    """Microseconds since 1970-01-01 UTC."""
    actor: str
    """Service or user that caused it."""
    data: D
    """Payload; docs/reference/events.schema.json has the fields of each type."""
    sentence: str
    """Reason of the decision, for people; empty if nothing was decided."""
    experiment_id: int | None
    """Experiment that it is about; None: none."""
    trial_id: str | None
    """Trial that it is about, such as 3-7; None: none."""
    causation_id: str | None
    """Id of the event that caused this one."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Event[Any]:
        """Event from the form in which REST, SSE and the bus give it (`told`). Raises ValueError if this version of Tenuto cannot
        read it."""
        if told["type"] not in EVENT_MODELS:
            raise ValueError(f"{told['type']} is of a newer Tenuto: upgrade the one that runs this automation.")
        correlation = str(told.get("correlation_id", ""))
        data = parse(told["type"], told["schema_version"], json.dumps(told["data"]).encode())
        return Event(
            position=told["position"],
            id=told["id"],
            type=told["type"],
            time_us=told["time_us"],
            actor=told["actor"],
            data=data,
            sentence=told.get("sentence") or sentence(told["type"], told["data"], told["actor"]),
            experiment_id=int(correlation) if correlation.isdecimal() else None,
            trial_id=getattr(data, "trial_id", None),
            causation_id=told.get("causation_id"),
        )
