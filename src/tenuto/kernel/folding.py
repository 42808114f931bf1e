"""The fold table of a core, by type of event: what a core consumes is read from it; what it emits, from the OWNER of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import OWNERS, EventData

S = TypeVar("S")


class Envelope(Protocol):
    """Parts of an event that a fold may read beside its data. Others are not yet known where a core folds its own decisions."""

    @property
    def time_us(self) -> int: ...

    @property
    def trace(self) -> str: ...


@dataclass(frozen=True)
class DraftEnvelope:
    """The envelope of an own event that is folded while its core still decides."""

    time_us: int
    trace: str = ""


NO_ENVELOPE = DraftEnvelope(0)
"""Envelope for a table none of whose folds reads it."""


@dataclass(frozen=True)
class WithEnvelope(Generic[S]):
    """A fold that reads the envelope, too: `fold(state, data, envelope)`."""

    fold: Callable[[S, Any, Envelope], S]


Fold = Callable[[S, Any], S] | WithEnvelope[S]
"""`fold(state, data)`, or `WithEnvelope(fold)`. Total: never raises on an event that was validly recorded."""


def unchanged(state: S, _: EventData) -> S:
    """The fold of an event that a core only decides on."""
    return state


class Folds(Generic[S]):
    """One table for a whole core: `FOLDS = Folds("tracker", {TrialRequested: requested, ...})`."""

    def __init__(self, service: str, table: Mapping[type[EventData], Fold[S]]) -> None:
        """`service`: the OWNER of its own events. Those in the table are folded as well, and not consumed."""
        self.emits = frozenset(name for name, owner in OWNERS.items() if owner == service)
        """Types of all events that the service owns."""
        self.consumes = frozenset(kind.TYPE for kind in table) - self.emits
        """Types of events of other services in the table."""
        self.kinds = frozenset(table)
        self._plain: dict[type[EventData], Callable[[S, Any], S]] = {}
        self._with_envelope: dict[type[EventData], Callable[[S, Any, Envelope], S]] = {}
        for kind, fold in table.items():
            if isinstance(fold, WithEnvelope):
                self._with_envelope[kind] = fold.fold
            else:
                self._plain[kind] = fold

    def evolve(self, state: S, event: Event) -> S:
        """The state after an event; the same object where the table has no function for it."""
        return self.apply(state, event.data, event)

    def apply(self, state: S, data: EventData, envelope: Envelope = NO_ENVELOPE) -> S:
        """Same as `evolve`, but also for an event that is not recorded yet."""
        kind = type(data)
        fold = self._plain.get(kind)
        if fold is not None:
            return fold(state, data)
        reading = self._with_envelope.get(kind)
        return state if reading is None else reading(state, data, envelope)
