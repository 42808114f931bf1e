"""Replay: the same state, and the same decisions, from the recorded log.

The order of folding: an own event carries `seen_position`, up to which its emitter had folded the inputs. So a fold takes every
input with a position up to that number before the own event, and the state is a function of the log alone, whatever batches the
inputs came in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tenuto.kernel.core import AnyCore, Core
from tenuto.kernel.decision import rule_version_of, step
from tenuto.schemas.envelope import Event

S = TypeVar("S")


class FoldOrder:
    """Puts a core's events from log order into the order in which the core folded them; other events are dropped.

    Holds back inputs until an own event shows that they were folded, so memory is bounded by how far the core was behind.
    """

    def __init__(self, core: AnyCore, pending: Iterable[Event] = ()) -> None:
        """`pending`: inputs that another one held back, to go on where it stopped."""
        self._core = core
        self._pending: deque[Event] = deque(pending)

    @property
    def pending(self) -> tuple[Event, ...]:
        """Inputs held back."""
        return tuple(self._pending)

    def push(self, event: Event) -> Iterator[Event]:
        if event.type in self._core.emits:
            yield from self.rest(event.seen_position)
            yield event
        elif event.type in self._core.consumes:
            self._pending.append(event)

    def rest(self, upto: int | None = None) -> Iterator[Event]:
        """Inputs held back, up to a position."""
        while self._pending and (upto is None or self._pending[0].position <= upto):
            yield self._pending.popleft()


def fold_order(core: AnyCore, events: Iterable[Event], inputs_upto: int | None = None) -> Iterator[Event]:
    order = FoldOrder(core)
    for event in events:
        yield from order.push(event)
    yield from order.rest(inputs_upto)


def fold(core: Core[S], events: Iterable[Event], upto: int | None = None, *, inputs_upto: int | None = None) -> S:
    """State after the events (in log order, from position 1; events of other types may be among them or left out).

    Only events with a position up to `upto` count. Inputs that no own event has seen yet are folded up to `inputs_upto` (the
    core's checkpoint); None: all of them.
    """
    state = core.initial()
    chosen = (event for event in events if upto is None or event.position <= upto)
    for event in fold_order(core, chosen, inputs_upto):
        state = core.evolve(state, event)
    return state


@dataclass(frozen=True)
class Divergence:
    """A decision that differs from the recorded one."""

    position: int
    """Position of the input that was decided on."""
    event_id: str
    expected: str | None
    """Recorded type, stream and payload. None: nothing was recorded."""
    decided: str | None
    """Type, stream and payload that the core decides today. None: nothing."""

    def __str__(self) -> str:
        return f"at position {self.position}: recorded {self.expected or 'nothing'}, decided now {self.decided or 'nothing'}"


@dataclass(frozen=True)
class Verdict:
    decisions: int = 0
    """Number of own events that were decided again and compared."""
    divergences: list[Divergence] = field(default_factory=list)
    inputs: int = 0
    """Number of inputs that were decided on again."""
    from_commands: int = 0
    """Number of own events that answer a command: folded, but not compared, because a command is not in the log."""
    other_rules: int = 0
    """Number of own events decided under another rule version: folded, not compared."""
    undecided: int = 0
    """Number of events that follow from the newest inputs and are not recorded yet: the service has not read that far."""

    @property
    def ok(self) -> bool:
        return not self.divergences


def verify_decisions(
    core: Core[S], events: Iterable[Event], *, decided_upto: int | None = None, divergences_max: int = 20
) -> Verdict:
    """Runs `decide` again over the recorded inputs and compares with the recorded own events: type, stream, payload bytes, id.

    `decided_upto` is the core's checkpoint: every input up to it has been decided on. None: the last own event's `seen_position`
    stands for it. Stops at `divergences_max`: after one wrong step the rest says little.
    """
    ordered = list(fold_order(core, events))
    own = [event for event in ordered if event.type in core.emits]
    if decided_upto is None:
        decided_upto = max((event.seen_position for event in own), default=0)
    old_rules_upto = max((event.seen_position for event in own if _other_rule(core, event)), default=0)
    return _Verifier(core, ordered, decided_upto, old_rules_upto, divergences_max).run()


def _other_rule(core: AnyCore, event: Event) -> bool:
    version = rule_version_of(event.actor)
    return version is not None and version != core.rule_version


def _text(event: Event | None) -> str | None:
    return None if event is None else f"{event.type} v{event.schema_version} on {event.stream}: {event.payload.decode()}"


class _Verifier(Generic[S]):
    def __init__(self, core: Core[S], ordered: list[Event], decided_upto: int, old_rules_upto: int, divergences_max: int) -> None:
        self._core, self._ordered = core, ordered
        self._decided_upto, self._old_rules_upto, self._divergences_max = decided_upto, old_rules_upto, divergences_max
        self._state = core.initial()
        self._counts = {"decisions": 0, "inputs": 0, "from_commands": 0, "other_rules": 0, "undecided": 0}
        self._divergences: list[Divergence] = []

    def run(self) -> Verdict:
        at = 0
        while at < len(self._ordered) and len(self._divergences) < self._divergences_max:
            event = self._ordered[at]
            at += 1
            self._state = self._core.evolve(self._state, event)
            if event.type in self._core.emits:
                self._counts["other_rules" if _other_rule(self._core, event) else "from_commands"] += 1
                continue
            recorded: list[Event] = []
            while at < len(self._ordered) and self._answers(self._ordered[at], event):
                recorded.append(self._ordered[at])
                at += 1
            self._compare(event, recorded)
            for answer in recorded:
                self._state = self._core.evolve(self._state, answer)
        return Verdict(divergences=self._divergences, **self._counts)

    def _answers(self, event: Event, cause: Event) -> bool:
        return event.type in self._core.emits and event.causation_id == cause.id

    def _compare(self, cause: Event, recorded: list[Event]) -> None:
        # Inputs up to here were decided under other rules, including those on which the other rules decided nothing.
        if cause.position <= self._old_rules_upto:
            self._counts["other_rules"] += len(recorded)
            return
        try:
            # The time of the decision is not compared: it comes from the emitter's clock.
            _, decided = step(self._core, self._state, cause, seen_position=cause.position, time_us=0)
        except Exception as error:
            self._divergences.append(Divergence(cause.position, str(cause.id), None, f"an error: {error!r}"))
            return
        self._counts["inputs"] += 1
        if cause.position > self._decided_upto and not recorded:
            self._counts["undecided"] += len(decided)
            return
        for index in range(max(len(recorded), len(decided))):
            was = recorded[index] if index < len(recorded) else None
            now = decided[index] if index < len(decided) else None
            self._counts["decisions"] += was is not None
            if was is None or now is None or _differs(was, now):
                subject = was or now
                assert subject is not None
                self._divergences.append(Divergence(cause.position, str(subject.id), _text(was), _text(now)))


def _differs(was: Event, now: Event) -> bool:
    return (was.id, was.type, was.stream, was.schema_version, was.payload) != (
        now.id,
        now.type,
        now.stream,
        now.schema_version,
        now.payload,
    )
