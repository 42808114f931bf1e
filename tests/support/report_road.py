"""The road of reports as a model with a virtual clock: the decisions of agent and receiver are the real ones
(`lane_decisions.py`, `reception.py`); the stream, the link, the table of positions and all that goes wrong are here."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tenuto.kernel.reception import HeldReport, Reception
from tenuto.workers.agent import lane_decisions

BATCH_MAX = 100
UNACKNOWLEDGED_MAX = 20_000
ACK_SECONDS = 30.0
DUPLICATE_WINDOW_SECONDS = 10.0
COMMIT_REPORTS_MAX = 250


@dataclass(frozen=True)
class Report:
    agent_id: str
    spool_id: str
    sequence: int
    round: int
    body: bytes = b""


@dataclass(eq=False)
class Message:
    report: Report
    delivered_at: float | None = None
    """Time of the last delivery; None while it waits for a receiver."""
    life: int = -1
    """Life (number of restarts) of the receiver when it got the message; -1 before its first delivery."""


@dataclass
class Faults:
    """Spontaneous faults, each with its probability."""

    publish_lost: float = 0.0
    answer_lost: float = 0.0
    """The stream stored a report, but its answer does not reach the agent."""
    message_lost: float = 0.0
    """The stream loses a stored message later."""
    delivered_twice: float = 0.0
    word_lost: float = 0.0
    word_twice: float = 0.0
    word_delay_seconds: float = 0.0
    commit_seconds: float = 0.01


@dataclass
class Counts:
    published: int = 0
    failed_batches: int = 0
    losses: int = 0
    """Messages lost, wipes, restarts of the receiver."""
    agent_starts: int = 0
    stored: int = 0


@dataclass
class Road:
    seed: int
    total: int
    report_seconds: float
    """Time between two reports of the worker."""
    faults: Faults
    now: float = 0.0
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.last = 0
        self.spool_committed = 0
        self.stream: list[Message] = []
        self._ids: dict[tuple[int, int], float] = {}
        self.position = 0
        self.recorded: list[int] = []
        self.life = 0
        self.stopped_until = 0.0
        self._receiver_busy = False
        self._reception: Reception[Report, Message] = Reception(10)
        self._arrived: deque[Message] = deque()
        self.agent_life = 0
        self._state = lane_decisions.begin(1, 0, 0.0)
        self._agent_busy = False
        self._next_tick: float | None = None
        self.start_agent()
        self.after(0.0, self._append)

    # Time.

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), action))

    def run(self, seconds_max: float) -> None:
        """Runs until all reports are committed and the agent knows it."""
        while self._events and not (self.spool_committed == self.total and not self.stream):
            at, _, action = heapq.heappop(self._events)
            assert at <= seconds_max, f"at {at:.0f} s {self.spool_committed} of {self.total} are committed: {self._state}"
            self.now = at
            action()

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._chance.random() < probability

    # The worker and the agent.

    def _append(self) -> None:
        self.last += 1
        self._tick()
        if self.last < self.total:
            self.after(self.report_seconds, self._append)

    def start_agent(self) -> None:
        self.agent_life += 1
        self.counts.agent_starts += 1
        self._state = lane_decisions.begin(self._state.round + 1_000, self.spool_committed, self.now)
        self._agent_busy, self._next_tick = False, None
        self._ask()

    def _living(self, action: Callable[[], None]) -> Callable[[], None]:
        """Wraps an action, so that it does nothing once the agent has been restarted."""
        life = self.agent_life
        return lambda: action() if life == self.agent_life else None

    def _tick(self) -> None:
        if self._agent_busy:
            return
        self._state, step = lane_decisions.next_step(self._state, self.last, self.now, BATCH_MAX)
        if step.do == "ask":
            self._ask()
        elif step.do == "publish":
            self._publish(step.limit)
        elif step.until is not None and (self._next_tick is None or step.until < self._next_tick):
            self._next_tick = step.until
            self.after(max(step.until - self.now, 0.0) + 1e-9, self._living(self._timed_tick))

    def _timed_tick(self) -> None:
        self._next_tick = None
        self._tick()

    def _publish(self, limit: int) -> None:
        self._agent_busy = True
        first, round = self._state.sent + 1, self._state.round
        through, complete = first - 1, True
        for sequence in range(first, min(first + limit, self.last + 1)):
            self.counts.published += 1
            taken = not self._happens(self.faults.publish_lost)
            if taken:
                self._store(Report("a", "s", sequence, round))
            if taken and not self._happens(self.faults.answer_lost):
                through = sequence if complete else through
            else:
                complete = False
        self.counts.failed_batches += not complete

        def done() -> None:
            self._agent_busy = False
            if self._state.round == round:
                self._state = lane_decisions.published(self._state, through, complete, self.now)
            self._tick()

        self.after(0.005 if complete else 5.0, self._living(done))

    def _ask(self) -> None:
        before = self._state
        self._state = lane_decisions.asked(self._state, self.now)
        self._agent_busy = True

        def done(answer: tuple[int, int] | None) -> None:
            self._agent_busy = False
            if answer is not None:
                self._hear(answer[0], False, 0)
                self._state = lane_decisions.answered(self._state, before, answer[0], answer[1], self.now)
            self._tick()

        if self.now < self.stopped_until or self._happens(self.faults.word_lost):
            self.after(2.0, self._living(lambda: done(None)))
        else:
            answer = self.position, len(self.stream)
            self.after(0.002, self._living(lambda: done(answer)))

    def _hear(self, sequence: int, resend: bool, round: int) -> None:
        assert sequence <= self.last
        self.spool_committed = max(self.spool_committed, sequence)
        self._state = lane_decisions.told(self._state, sequence, resend, round, self.now)

    def _heard(self, sequence: int, resend: bool, round: int) -> None:
        self._hear(sequence, resend, round)
        self._tick()

    # The stream.

    def _store(self, report: Report) -> None:
        key = report.sequence, report.round
        if self.now - self._ids.get(key, -1e9) < DUPLICATE_WINDOW_SECONDS:
            return
        self._ids[key] = self.now
        self.counts.stored += 1
        self.stream.append(Message(report))
        if self._happens(self.faults.message_lost):
            self.counts.losses += 1
            self.stream.pop()
        self.after(0.001, self._receive)

    def wipe(self) -> None:
        self.counts.losses += 1
        self.stream.clear()
        self._ids.clear()
        self._arrived.clear()
        self.after(0.2, self._living(self._link_was_away))

    def _link_was_away(self) -> None:
        self._state = lane_decisions.reconnected(self._state, self.now)
        self._tick()

    # The receiver.

    def stop_receiver(self, seconds: float) -> None:
        self.stopped_until = self.now + seconds
        self.after(seconds, self._receive)

    def kill_receiver(self) -> None:
        """Ends the receiver at once; its unacknowledged messages are delivered again after their time limit."""
        self.counts.losses += 1
        self.life += 1
        self._receiver_busy = False
        self._reception = Reception(10)
        self._arrived.clear()
        self.after(0.5, self._receive)
        self.after(ACK_SECONDS + 1, self._receive)

    def _receive(self) -> None:
        if self._receiver_busy or self.now < self.stopped_until:
            return
        for unacknowledged, message in enumerate(self.stream):
            overdue = message.life != self.life and message.delivered_at is not None
            if message.delivered_at is None or (overdue and self.now - message.delivered_at > ACK_SECONDS):
                if unacknowledged >= UNACKNOWLEDGED_MAX:
                    break
                message.delivered_at, message.life = self.now, self.life
                self._arrived.append(message)
                if self._happens(self.faults.delivered_twice):
                    self._arrived.append(message)
        words = self._sort()
        chosen = self._reception.choose(COMMIT_REPORTS_MAX, 1 << 20)
        if not chosen:
            for word in words:
                self._tell(*word)
            return
        self._receiver_busy = True
        life = self.life
        self.after(self.faults.commit_seconds, lambda: self._commit(chosen, words) if life == self.life else None)

    def _sort(self) -> list[tuple[int, bool, int]]:
        word: tuple[int, bool, int] | None = None
        while self._arrived:
            message = self._arrived.popleft()
            report = message.report
            spool = report.agent_id, report.spool_id
            if not self._reception.known(spool):
                self._reception.learn(spool, self.position)
            verdict = self._reception.take(report, message)
            if verdict != "held":
                word = (self.position, verdict == "gap", report.round)
                self._acknowledge(message)
        return [word] if word else []

    def _commit(self, chosen: list[HeldReport[Report, Message]], words: list[tuple[int, bool, int]]) -> None:
        self._receiver_busy = False
        self.recorded.extend(item.report.sequence for item in chosen)
        (self.position,) = self._reception.commit(chosen).values()
        for item in chosen:
            for message in item.messages:
                self._acknowledge(message)
        _, resend, round = words[0] if words else (0, False, 0)
        self._tell(self.position, resend, round)
        self._receive()

    def _acknowledge(self, message: Message) -> None:
        if message in self.stream:
            self.stream.remove(message)

    def _tell(self, sequence: int, resend: bool, round: int) -> None:
        if self._happens(self.faults.word_lost):
            return
        for _ in range(2 if self._happens(self.faults.word_twice) else 1):
            delay = 0.001 + self._chance.random() * self.faults.word_delay_seconds
            self.after(delay, self._living(lambda: self._heard(sequence, resend, round)))
