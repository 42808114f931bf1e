"""One step of a pure core: a cause goes in, the events that follow come out. The live loop, replay and the simulator share it."""

from __future__ import annotations

from typing import TypeVar

from tenuto.kernel.core import Command, Core, Settle
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import derived_event_id

S = TypeVar("S")


def actor_of(name: str, rule_version: int) -> str:
    return f"{name}/{rule_version}"


def rule_version_of(actor: str) -> int | None:
    """Rule version in an actor such as `searcher/2`; None if the actor is a person."""
    name, _, version = actor.rpartition("/")
    return int(version) if name and version.isdigit() else None


def step(core: Core[S], state: S, cause: Event | Command, *, seen_position: int, time_us: int) -> tuple[S, tuple[Event, ...]]:
    """Decides on `cause`, and folds the decided events into the state. An input must already be folded.

    The events have no position and version yet. A command may carry two attributes beside its id and time: `trace` (W3C
    traceparent) and `actor` (such as `user:ada`); both are copied to its events.

    Raises what `decide` raises, and TypeError if it returns a type that the core does not declare.
    """
    actor = "" if isinstance(cause, Event) else getattr(cause, "actor", "")
    events: list[Event] = []
    settle: Settle | None = getattr(core, "settle", None)
    decided, settled = (core.decide(state, cause), state) if settle is None else settle(state, cause)
    for index, data in enumerate(decided):
        if data.TYPE not in core.emits:
            raise TypeError(f"{core.name} decided {data.TYPE}, which it does not declare in `emits`")
        event = Event(
            id=derived_event_id(core.name, cause.id, index),
            stream=data.stream(),
            type=data.TYPE,
            schema_version=data.VERSION,
            time_us=time_us,
            # The live fold uses these bytes, as every later reader does, and not the draft (a tuple in a free-form field
            # comes back as a list).
            payload=data.to_json(),
            actor=actor or actor_of(core.name, core.rule_version),
            correlation_id=core.correlation_id(state, data),
            causation_id=cause.id,
            seen_position=seen_position,
            trace=getattr(cause, "trace", ""),
        )
        events.append(event)
        if settle is None:
            settled = core.evolve(settled, event)
    return settled, tuple(events)
