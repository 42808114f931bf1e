"""An event as it is appended, recorded and published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic_core import from_json

from tenuto.schemas.events import EventData, parse

_DATA_MARK = b',"data":'
T = TypeVar("T")


class _once(Generic[T]):  # noqa: N801 (used as a decorator)
    """`functools.cached_property` without its lock, which takes as long as an event's decoding in Python 3.11; two threads that
    decode the same event at once find the same."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.func, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, instance: Any, owner: type[Any]) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = self.func(instance)
        instance.__dict__[self._name] = value
        return value


@dataclass(frozen=True)
class Event:
    """One event. `position` and `version` are 0 until the log has recorded it; pure cores must not read them.

    The payload is the exact JSON bytes that were hashed; `data` is the same as a model, decoded on first use.
    """

    id: UUID
    stream: str
    """`<kind>/<key>`, such as `trial/3-7`."""
    type: str
    schema_version: int
    time_us: int
    """Time of the decision: microseconds since 1970-01-01 UTC, by the emitter's clock."""
    payload: bytes
    actor: str
    """`<service>/<rule version>`, or `user:<name>` for a request of a user."""
    correlation_id: str = ""
    """Id of the experiment; empty for events that belong to none (agents)."""
    causation_id: UUID | None = None
    """Id of the event or command that caused this event."""
    seen_position: int = 0
    """Log position up to which the emitter had read when it decided: its inputs are exactly the events up to here. Replay uses
    this number to fold the emitter's own events between the right inputs."""
    trace: str = ""
    """W3C traceparent, or empty."""
    position: int = 0
    version: int = 0

    @_once
    def data(self) -> EventData:
        return parse(self.type, self.schema_version, self.payload)

    def recorded(self, position: int, version: int) -> Event:
        # Like dataclasses.replace, ten times faster, and a decoded `data` is kept: the payload stays the same.
        event = object.__new__(Event)
        event.__dict__.update(self.__dict__, position=position, version=version)
        return event


def encode_event(event: Event) -> bytes:
    """One JSON object whose last member, `data`, is the payload byte for byte."""
    meta = {
        "id": str(event.id),
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "type": event.type,
        "schema_version": event.schema_version,
        "time_us": event.time_us,
        "actor": event.actor,
        "correlation_id": event.correlation_id,
        "causation_id": str(event.causation_id) if event.causation_id else None,
        "seen_position": event.seen_position,
        "trace": event.trace,
    }
    return json.dumps(meta, separators=(",", ":")).encode()[:-1] + _DATA_MARK + event.payload + b"}"


def decode_event(body: bytes) -> Event:
    """The inverse of `encode_event`, with the payload byte for byte. Raises ValueError if the body is not an event."""
    # Inside a JSON string a quote is always escaped, so the first mark can only be the member itself.
    head, mark, tail = body.partition(_DATA_MARK)
    if not mark or not tail.endswith(b"}"):
        raise ValueError("not an event: it has no data member")
    meta = from_json(head + b"}")
    # Not by the frozen constructor, which sets the fields one by one: each service decodes every event of the log.
    event = object.__new__(Event)
    event.__dict__.update(
        id=UUID(meta["id"]),
        position=meta["position"],
        stream=meta["stream"],
        version=meta["version"],
        type=meta["type"],
        schema_version=meta["schema_version"],
        time_us=meta["time_us"],
        actor=meta["actor"],
        correlation_id=meta["correlation_id"],
        causation_id=UUID(meta["causation_id"]) if meta["causation_id"] else None,
        seen_position=meta["seen_position"],
        trace=meta["trace"],
        payload=tail[:-1],
    )
    return event
