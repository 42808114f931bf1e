"""What a pure core looks like. Every deciding service provides one; the service loop, replay and the simulator run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData

S = TypeVar("S")


@runtime_checkable
class Command(Protocol):
    """An order from outside the log (a REST call, a report, a lease that ran out). Frozen data. Not recorded itself: what was
    decided because of it is. Its id makes it idempotent: the same command again yields the same event ids."""

    @property
    def id(self) -> UUID: ...

    @property
    def time_us(self) -> int: ...


class Refused(Exception):
    """A command that cannot be carried out. `str(error)` is one sentence for the user: what, why, what to do.

    `code` is a stable word for programs: not_found, conflict, invalid, forbidden.
    """

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message)
        self.code = code


class Core(Protocol[S]):
    """State is immutable (frozen dataclasses, tuples, `immutables.Map`). No method reads a clock, randomness or the
    environment, does I/O, logs, or iterates over something whose order is not defined (sets; Maps without sorting)."""

    name: str
    """The service's name: its actor, its consumer, the seed of its event ids."""
    rule_version: int
    """Raised when `decide` changes in a way that would decide recorded inputs differently."""
    consumes: frozenset[str]
    """Types of events of other services that change the state. All others pass by."""
    emits: frozenset[str]
    """Types of events that `decide` returns."""

    def initial(self) -> S: ...

    def evolve(self, state: S, event: Event) -> S:
        """Fold one event, an input or one of the core's own. Must not read `position` and `version`: its own events are
        folded before they have them. Total: never raises on an event that was validly recorded."""
        ...

    def decide(self, state: S, cause: Event | Command) -> Sequence[EventData]:
        """What follows. For an event: called after `evolve(state, event)`. For a command: called as it is; it may raise
        Refused. The returned payloads are folded, in order, before the next cause is looked at."""
        ...

    def correlation_id(self, state: S, data: EventData) -> str:
        """The experiment that an event of this core belongs to, or an empty string."""
        ...

    def guards(self, state: S, cause: Event | Command) -> Mapping[str, int]:
        """Streams, with the version this core has folded, that must not have moved when the decision is committed.
        Usually empty. Needed where a command must be judged by the very latest facts (fencing)."""
        ...

    def check(self, state: S) -> None:
        """Assert the invariants of the state; raises AssertionError."""
        ...

    def dump(self, state: S) -> bytes:
        """The state as canonical bytes: equal states give equal bytes."""
        ...

    def load(self, data: bytes) -> S: ...


Settle = Callable[[Any, "Event | Command"], tuple[Sequence[EventData], Any]]
"""A core may have a method `settle(state, cause)` beside `decide`: what `decide` returns, and the state with all of that folded
in, exactly as `evolve` makes it of these events when they are read back. A core that folds while it decides need not do it
twice."""

AnyCore = Core[Any]
