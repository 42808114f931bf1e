"""Content of one commit of the service loop, before it is committed: inputs and commands decided on, and the events that
follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar
from uuid import UUID

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Command, Core, Refused
from tenuto.kernel.decision import step
from tenuto.kernel.eventlog import APPEND_EVENTS_MAX
from tenuto.schemas.envelope import Event

logger = logging.getLogger(__name__)
S = TypeVar("S")
Answer = tuple[Event, ...] | Refused


class Poisoned(Exception):
    """A deciding service cannot go on: skipping the event would be silent divergence."""

    def __init__(self, service: str, event: Event, reason: BaseException) -> None:
        super().__init__(
            f"{service} stops at position {event.position}: it cannot fold or decide on {event.type} {event.id} "
            f"({type(reason).__name__}: {reason}). Fix the code and start it again; it goes on from there."
        )
        self.event, self.reason = event, reason


class WaitingCommand:
    """A command whose sender awaits the answer."""

    def __init__(self, command: Command, answer: asyncio.Future[Answer]) -> None:
        self.command, self.answer = command, answer
        self.attempts = 0

    def give(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class CommitDraft(Generic[S]):
    """Decisions that are not committed yet. If the commit fails, the draft is dropped without a trace."""

    def __init__(self, core: Core[S], state: S, position: int) -> None:
        self._core = core
        self.state, self.position = state, position
        self.events: list[Event] = []
        self.guards: dict[str, int] = {}
        self.answers: list[tuple[WaitingCommand, slice | Refused]] = []
        """Per command taken: its part of `events`, or its refusal."""
        self.inputs_taken = 0
        self.commands_taken = 0
        self.poisoned: Poisoned | None = None
        """Error of the first input that could not be taken; it stops the service."""
        self._folded: list[Event | int] = []
        """Inputs, and indices of own events in `events`, in the order of folding."""
        self._command_ids: set[UUID] = set()

    def decide(self, inputs: Iterable[Event], commands: Iterable[WaitingCommand], clock: Clock) -> None:
        """Takes as many inputs and then commands as fit into one append. An input that decides more than that is taken alone."""
        for event in inputs:
            try:
                taken = self._take_input(event, clock)
            except Exception as error:
                self.poisoned = Poisoned(self._core.name, event, error)
                return
            if not taken:
                return
            self.inputs_taken += 1
        for item in commands:
            if not self._take_command(item, clock):
                return
            self.commands_taken += 1

    def folded(self, recorded: Sequence[Event]) -> list[Event]:
        """Events that lead from the old state to the new one, given the own ones as recorded."""
        return [item if isinstance(item, Event) else recorded[item] for item in self._folded]

    def traces(self) -> list[str]:
        return [event.trace for event in self.events if event.trace]

    def _take_input(self, event: Event, clock: Clock) -> bool:
        if event.position <= self.position:
            return True  # `_catch_up` has read it from the log already
        core = self._core
        # Own events come back through the feed, but were folded when they were decided.
        if event.type in core.consumes and event.type not in core.emits:
            state = core.evolve(self.state, event)
            state, decided = step(core, state, event, seen_position=event.position, time_us=clock.now_us())
            if self.events and len(self.events) + len(decided) > APPEND_EVENTS_MAX:
                return False
            self._folded.append(event)
            self._add(state, decided)
        self.position = event.position
        return True

    def _take_command(self, item: WaitingCommand, clock: Clock) -> bool:
        core, command = self._core, item.command
        if command.id in self._command_ids:
            # Sent again while the first one is in this draft; its answer is read from the log once that is committed.
            return False
        self._command_ids.add(command.id)
        try:
            guards = core.guards(self.state, command)
            state, decided = step(core, self.state, command, seen_position=self.position, time_us=clock.now_us())
            # Only an input may be split over several appends: recovery tells its parts by their `seen_position`.
            if len(decided) > APPEND_EVENTS_MAX:
                raise Refused(f"this would record {len(decided)} events at once; at most {APPEND_EVENTS_MAX} can be.", "invalid")
        except Refused as refusal:
            self.answers.append((item, refusal))
            return True
        except Exception as error:
            # Unlike an input, a command is not in the log: dropping it is no divergence, and its sender is told.
            logger.exception("%s failed on %r", core.name, command)
            what = f"{core.name} failed on this ({type(error).__name__}: {error}). This is a defect in Tenuto."
            self.answers.append((item, Refused(what, "internal")))
            return True
        if len(self.events) + len(decided) > APPEND_EVENTS_MAX:
            return False
        if decided:
            self.guards.update(guards)
        self.answers.append((item, self._add(state, decided)))
        return True

    def _add(self, state: S, decided: Sequence[Event]) -> slice:
        first = len(self.events)
        self.state = state
        self.events.extend(decided)
        self._folded.extend(range(first, len(self.events)))
        return slice(first, len(self.events))
