"""The protocol of a pure core. Every deciding service provides one; the service loop, replay and the simulator run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from tenuto.kernel.codec import Codec
from tenuto.kernel.folding import Folds
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData

S = TypeVar("S")


@runtime_checkable
class Command(Protocol):
    """An order from outside the log (a REST call, a report, a lease that ran out). Frozen data. The command itself is not
    recorded; the events decided because of it are. Its id makes it idempotent: the same command again yields the same event
    ids."""

    @property
    def id(self) -> UUID: ...

    @property
    def time_us(self) -> int: ...


class Refused(Exception):
    """A command that cannot be carried out. `str(error)` is one sentence for the user: what, why, what to do.

    `code` is a stable word for programs: not_found, conflict, exists, invalid, forbidden.
    """

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message)
        self.code = code


class Core(Protocol[S]):
    """State is immutable (frozen dataclasses, tuples, `immutables.Map`). No method reads a clock, randomness or the
    environment, does I/O, logs, or iterates over something whose order is not defined (sets; Maps without sorting)."""

    name: str
    """Name of the service. It is also the name of its actor and its consumer, and enters the ids of its events."""
    rule_version: int
    """Raised when `decide` changes in a way that would decide recorded inputs differently."""
    consumes: frozenset[str]
    """Types of other services' events that change the state. All other types are skipped."""
    emits: frozenset[str]
    """Types of events that `decide` returns."""

    def initial(self) -> S: ...

    def evolve(self, state: S, event: Event) -> S:
        """Fold one event, an input or one of the core's own. Must not read `position` and `version`: own events are folded
        before they have them. Total: never raises on an event that was validly recorded."""
        ...

    def decide(self, state: S, cause: Event | Command) -> Sequence[EventData]:
        """Events that follow from the cause. For an event: called after `evolve(state, event)`. For a command: called without
        folding; it may raise Refused. The returned payloads are folded, in order, before the next cause."""
        ...

    def correlation_id(self, state: S, data: EventData) -> str:
        """Id of the experiment that an event of this core belongs to, or an empty string."""
        ...

    def guards(self, state: S, cause: Event | Command) -> Mapping[str, int]:
        """Streams, with the version this core has folded, that must be unchanged when the decision is committed. Usually
        empty. Needed if a command must be judged by the very latest facts (fencing)."""
        ...

    def check(self, state: S) -> None:
        """Assert the invariants of the state; raises AssertionError."""
        ...

    def dump(self, state: S) -> bytes:
        """The state as canonical bytes: equal states give equal bytes."""
        ...

    def load(self, data: bytes) -> S:
        """Raises SnapshotRefused for what is no state of this build's classes."""
        ...


class FoldedCore(Generic[S]):
    """A core put together of its service's rooms: what it folds, consumes and emits is read from its fold table, and what a
    snapshot holds from the classes of its state. A subclass adds `name`, `rule_version`, `initial`, `decide`, `correlation_id`
    and `check`, and `guards` where it needs them."""

    folds: Folds[S]
    """The table of `evolve.py`."""
    codec: Codec[S]
    consumes: frozenset[str]
    emits: frozenset[str]

    def __init_subclass__(cls) -> None:
        if "folds" in vars(cls):
            cls.consumes, cls.emits = cls.folds.consumes, cls.folds.emits

    def evolve(self, state: S, event: Event) -> S:
        return self.folds.evolve(state, event)

    def guards(self, state: S, cause: Event | Command) -> Mapping[str, int]:
        return {}

    def dump(self, state: S) -> bytes:
        return self.codec.dump(state)

    def load(self, data: bytes) -> S:
        return self.codec.load(data)


Settle = Callable[[Any, "Event | Command"], tuple[Sequence[EventData], Any]]
"""Optional method `settle(state, cause)` of a core beside `decide`. It returns the decided events, and the state with all of
them folded in, exactly as `evolve` folds them when they are read back. A core that already folds while it decides avoids
folding twice."""

AnyCore = Core[Any]
