"""The service loop: folds inputs in log order, decides, and commits the decided events together with the checkpoint.

Inputs come from a feed, commands from `submit`. All that wait are decided on together and appended at once: a commit costs one
fsync, however many decisions it holds. The state visible to others is always the committed one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Generic, TypeVar
from uuid import UUID

from tenuto.kernel import telemetry
from tenuto.kernel.clock import Clock
from tenuto.kernel.commit import append_surely, recorded_answers
from tenuto.kernel.commit_draft import Answer, CommitDraft, WaitingCommand
from tenuto.kernel.core import Command, Core, Refused
from tenuto.kernel.eventlog import (
    APPEND_EVENTS_MAX,
    READ_EVENTS_MAX,
    Append,
    ConsumerCheckpoint,
    DuplicateEvent,
    EventLog,
    LogUnavailable,
    VersionConflict,
)
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.head_watch import read_patiently
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.instruments import OfLoop
from tenuto.kernel.monitoring.sampling import MonitoredState, Sample
from tenuto.kernel.recovery import recover
from tenuto.kernel.settings import Settings
from tenuto.kernel.snapshots import Snapshots
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event

logger = logging.getLogger(__name__)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
Folded = Callable[[S, Sequence[Event]], None]

COMMANDS_WAITING_MAX = 10_000
"""Most commands not yet decided on; beyond it `submit` waits, so a flood slows its senders and not the service."""
COMMANDS_BATCH_MAX = 1_000
"""Most commands in one commit: bounds the time that inputs wait behind them."""
INPUT_BATCHES_WAITING_MAX = 4
"""Most batches taken from the feed ahead of need: enough to read while a commit is under way."""
GUARD_ATTEMPTS_MAX = 20
"""Most times that a command is decided again because a guarded stream moved. Each time the loop has read the log to its end,
so only a writer that commits within every such window can use them all up."""
COMMAND_SECONDS_MAX = 30.0
"""Longest wait for a command's commit; then the log counts as unavailable, and the caller decides what to do."""
CHECKPOINT_SECONDS = 1.0
"""Idle time after which the checkpoint moves to the last folded input, if it is behind only because nothing had to be decided."""


class FeedBroken(Exception):
    """The feed left out events or changed their order: going on would be silent divergence."""


class LoopStopped(LogUnavailable):
    """The command was not decided on, because the service is stopping."""


class ServiceLoop(Generic[S_co]):
    """Runs one core. `state` and `position` are the committed ones: the folded state, and the position of the last input."""

    def __init__(
        self, core: Core[S_co], log: EventLog, feed: EventFeed, clock: Clock, settings: Settings, *, checks: bool = False
    ) -> None:
        """`checks`: assert the core's invariants after each commit (tests, simulation)."""
        self.core, self._log, self._feed, self._clock, self._settings = core, log, feed, clock, settings
        self.state: S_co = core.initial()
        self.position = 0
        self.own_position = 0
        self.available = True
        """False while the log cannot be reached."""
        self._checks = checks
        self._checkpoint = ConsumerCheckpoint(core.name)
        self._snapshots = Snapshots(log, settings.snapshot_events)
        self._batches: asyncio.Queue[list[Event]] = asyncio.Queue(INPUT_BATCHES_WAITING_MAX)
        self._waiting: asyncio.Queue[WaitingCommand] = asyncio.Queue(COMMANDS_WAITING_MAX)
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopped = False
        self._callbacks: list[Folded[S_co]] = []
        self._position_waits: list[tuple[int, asyncio.Future[None]]] = []
        self._already: dict[UUID, Event] = {}
        self._measured = OfLoop(core.name)

    # Interface for the rest of the service.

    def on_folded(self, callback: Folded[S_co]) -> None:
        """Adds a callback. It is called after recovery (with no events), then after each committed batch with the new state
        and the folded events: inputs that the core consumes, and own events with their positions. Must not block."""
        self._callbacks.append(callback)

    async def wait_ready(self) -> None:
        """Returns when the state is recovered."""
        await self._ready.wait()

    def watched(self) -> MonitoredState:
        """Sources of the loop's metrics."""

        async def waiting() -> Sequence[Sample]:
            return [Sample(catalogue.COMMANDS_WAITING, self._waiting.qsize(), (self.core.name,))]

        return MonitoredState(self._not_ready, {"commands": waiting}, {self.core.name: self}, lambda: self.available)

    def _not_ready(self) -> str:
        if not self._ready.is_set():
            return "The service reads the event log."
        return "" if self.available else "The event log cannot be written."

    async def wait_position(self, position: int) -> None:
        """Returns when every input up to `position` is folded and committed."""
        if self.position < position:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._position_waits.append((position, done))
            await done

    async def submit(self, command: Command) -> tuple[Event, ...]:
        """Returns the decided events after their commit; empty if nothing had to be done.

        Raises Refused; LogUnavailable if no commit was possible in time (it may still happen: submit the same command again, it
        is never carried out twice); VersionConflict if a guarded stream kept moving.
        """
        [answer] = await self.submit_many([command])
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def submit_many(self, commands: Sequence[Command]) -> list[Answer]:
        """Like `submit`, in the given order, in one commit if possible. A refusal is returned in its command's place."""
        if self._stopped:
            raise LoopStopped(f"{self.core.name} is stopping")
        loop, begun = asyncio.get_running_loop(), perf_counter()
        waiting = [WaitingCommand(command, loop.create_future()) for command in commands]
        try:
            async with asyncio.timeout(COMMAND_SECONDS_MAX):
                for item in waiting:
                    # The loop may sleep: more commands than the queue holds would otherwise wait for it, and it for the
                    # wake-up below.
                    if self._waiting.full():
                        self._wake.set()
                    await self._waiting.put(item)
                self._wake.set()
                answers = [await item.answer for item in waiting]
            self._measured.command_seconds.observe(perf_counter() - begun)
            return answers
        except TimeoutError:
            raise LogUnavailable(f"{self.core.name} could not commit within {COMMAND_SECONDS_MAX:.0f} s") from None
        finally:
            for item in waiting:
                if not item.answer.cancel() and not item.answer.cancelled():
                    item.answer.exception()  # marks the error as retrieved: a sibling's was raised instead

    # The loop itself.

    async def run(self) -> None:
        """Runs until cancelled. Raises Fenced if another instance took over, Poisoned if an input cannot be decided on."""
        pump: asyncio.Task[None] | None = None
        try:
            recovered = await recover(self.core, self._log)
            self.state, self.position = recovered.state, recovered.checkpoint.position
            self.own_position, self._checkpoint = recovered.own_position, recovered.checkpoint
            self._already = recovered.already
            self._snapshots.start(recovered.snapshot_position)
            self._tell([])
            self._ready.set()
            pump = asyncio.create_task(self._pump(), name=f"{self.core.name}-feed")
            # A pump that fails must wake the loop, which then raises the error.
            pump.add_done_callback(lambda _: self._wake.set())
            inputs: deque[Event] = deque()
            commands: deque[WaitingCommand] = deque()
            while True:
                await self._wait_for_work(pump, inputs, commands)
                await self._settle(inputs, commands)
                await self._snapshot_if_due()
        finally:
            self._stopped = True
            await self._snapshots.stop()
            await stop_task(pump)
            while not self._waiting.empty():
                self._waiting.get_nowait().fail(LoopStopped(f"{self.core.name} is stopping"))

    async def _pump(self) -> None:
        expected = self.position + 1
        async for batch in self._feed.follow(self.position, self._settings.batch_events_max):
            if [event.position for event in batch] != list(range(expected, expected + len(batch))):
                raise FeedBroken(f"the feed gave positions {batch[0].position} to {batch[-1].position}, not {expected} and on")
            expected += len(batch)
            await self._batches.put(batch)
            self._wake.set()

    async def _wait_for_work(self, pump: asyncio.Task[None], inputs: deque[Event], commands: deque[WaitingCommand]) -> None:
        while True:
            self._wake.clear()
            while len(inputs) < self._settings.batch_events_max and not self._batches.empty():
                inputs.extend(self._batches.get_nowait())
            # While a split input is committed only in part (`_already`), commands wait: no events may come between its parts.
            while len(commands) < COMMANDS_BATCH_MAX and not self._waiting.empty() and not self._already:
                commands.append(self._waiting.get_nowait())
            if inputs or commands:
                return
            # Only after inputs already taken are settled: the events before the failure are good.
            if pump.done():
                pump.result()
                raise RuntimeError("the feed ended, though it should go on for ever")
            if self._checkpoint.position == self.position:
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                await self._append(Append(checkpoint=self._checkpoint, next_position=self.position))

    async def _settle(self, inputs: deque[Event], commands: deque[WaitingCommand]) -> None:
        """Commits until no taken input or command is left. Inputs come first; commands are judged after them."""
        try:
            while inputs or commands:
                await self._commit_some(inputs, commands)
        finally:
            for item in commands:
                item.fail(LoopStopped(f"{self.core.name} is stopping"))

    async def _commit_some(self, inputs: deque[Event], commands: deque[WaitingCommand]) -> None:
        draft = CommitDraft(self.core, self.state, self.position)
        begun = perf_counter()
        draft.decide(inputs, commands, self._clock)
        self._measured.decide_seconds.observe(perf_counter() - begun)
        oldest_us = inputs[0].time_us if draft.inputs_taken and draft.events else None
        try:
            await self._commit(draft)
        except VersionConflict as conflict:
            if not draft.guards:
                raise
            await self._catch_up(inputs, commands, draft, conflict)
            return
        except DuplicateEvent:
            if not await self._drop_done(commands, draft):
                raise
            return
        answers = [answer.code if isinstance(answer, Refused) else "" for _, answer in draft.answers]
        seconds = None if oldest_us is None else (self._clock.now_us() - oldest_us) / 1e6
        self._measured.committed(draft.inputs_taken, len(draft.events), answers, seconds)
        for _ in range(draft.inputs_taken):
            inputs.popleft()
        for _ in range(draft.commands_taken):
            commands.popleft()
        # Inputs before the poisoned one are committed first, so that the service stops exactly in front of it.
        if draft.poisoned is not None:
            logger.critical("%s", draft.poisoned)
            raise draft.poisoned from draft.poisoned.reason

    async def _catch_up(
        self, inputs: deque[Event], commands: deque[WaitingCommand], draft: CommitDraft[S_co], conflict: VersionConflict
    ) -> None:
        """Reads the log to its end after a guarded stream moved, so that the commands are judged again by the latest facts."""
        for item, _ in draft.answers:
            item.attempts += 1
            if item.attempts >= GUARD_ATTEMPTS_MAX:
                commands.remove(item)
                item.fail(conflict)
        # Inputs that wait are not committed yet, so the read begins behind the last of them.
        last = inputs[-1].position if inputs else self.position
        inputs.extend(await read_patiently(self._log, max(last, self.position), READ_EVENTS_MAX))

    async def _drop_done(self, commands: deque[WaitingCommand], draft: CommitDraft[S_co]) -> bool:
        """Gives commands that were carried out before (before a restart, or for a sender that stopped waiting) their recorded
        answer."""
        dropped = False
        for item, answer in draft.answers:
            # Commands without events have no ids in the log that could collide.
            if isinstance(answer, Refused) or not draft.events[answer]:
                continue
            recorded = await recorded_answers(self._log, self.core.name, item.command.id)
            if recorded:
                dropped = True
                commands.remove(item)
                item.give(recorded)
        return dropped

    async def _commit(self, draft: CommitDraft[S_co]) -> None:
        recorded: tuple[Event, ...] = ()
        # Without events nothing is written: the checkpoint follows when the loop is idle, and a restart before that folds these
        # inputs again.
        if draft.events:
            with telemetry.span(
                "commit", links=draft.traces(), service=self.core.name, events=len(draft.events), inputs=draft.inputs_taken
            ):
                begun = perf_counter()
                recorded = await self._append_all(draft)
                self._measured.commit_seconds.observe(perf_counter() - begun)
        self.state, self.position = draft.state, draft.position
        if self._checks:
            self.core.check(self.state)
        for item, answer in draft.answers:
            item.give(recorded[answer] if isinstance(answer, slice) else answer)
        self._tell(draft.folded(recorded))

    async def _append_all(self, draft: CommitDraft[S_co]) -> tuple[Event, ...]:
        """The draft's events as recorded. They are one append, unless a single input decides more than fits into one: then the
        checkpoint moves with the last part, and recovery tells the first parts by their `seen_position`."""
        done = {event.id: self._already[event.id] for event in draft.events if event.id in self._already}
        new = [event for event in draft.events if event.id not in done]
        first_part_positions = range(0, max(len(new), 1), APPEND_EVENTS_MAX)
        for first in first_part_positions:
            part = new[first : first + APPEND_EVENTS_MAX]
            last = first == first_part_positions[-1]
            appended = await self._append(Append(part, self._checkpoint, draft.position if last else self.position, draft.guards))
            done.update((event.id, event) for event in appended)
        recorded = tuple(done[event.id] for event in draft.events)
        self.own_position = max(self.own_position, recorded[-1].position)
        self._already = {id: event for id, event in self._already.items() if id not in done}
        return recorded

    async def _append(self, batch: Append) -> tuple[Event, ...]:
        appended = await append_surely(self._log, batch, self._tell_available)
        assert appended.checkpoint is not None
        self._checkpoint = appended.checkpoint
        return appended.events

    def _tell_available(self, available: bool) -> None:
        self.available = available

    def _tell(self, folded: Sequence[Event]) -> None:
        for callback in self._callbacks:
            callback(self.state, folded)
        reached = [item for item in self._position_waits if item[0] <= self.position]
        if reached:
            self._position_waits = [item for item in self._position_waits if item[0] > self.position]
            for _, done in reached:
                if not done.done():
                    done.set_result(None)

    async def _snapshot_if_due(self) -> None:
        if not self._snapshots.due(self.position):
            return
        if self._checkpoint.position < self.position:
            await self._append(Append(checkpoint=self._checkpoint, next_position=self.position))
        self._snapshots.save(self.core, self.state, self.position, self.own_position)
