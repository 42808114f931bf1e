"""Reactions to the log: a receiver is given events one at a time, in order, each until it is handled or parked.

Targets of webhooks, rules of automations, handlers of a durable reader and effects of services are receivers. What counts as an
attempt, how long the next one waits and when an event is parked is decided here, for all of them. An outage of the database, of
the bus or of the cluster is no attempt of the receiver, which could not be reached: it is waited for, and takes none of the
receiver's time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

OUTAGE_SECONDS_MAX = 15.0
"""Longest wait between attempts during an outage: one that is over is noticed soon, and an attempt costs one request."""


def wait_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Wait after this number of failures in a row: doubles from `first_seconds` up to `max_seconds`."""
    return min(max_seconds, first_seconds * 2.0 ** min(max(failures - 1, 0), 60))


@dataclass(frozen=True)
class Failure:
    """Failure to give an event to a receiver, or of the receiver to handle it."""

    reason: str
    kind: Literal["attempt", "final", "outage"] = "attempt"
    """attempt: the receiver failed. final: it will never handle this event. outage: it was not at fault, and not reached."""
    asked_seconds: float | None = None
    """Least wait that the receiver asks for; None: it asks for none."""


@dataclass(frozen=True)
class ReceiverProgress:
    """Progress of one receiver."""

    position: int = 0
    """Position up to which all events are handled or parked."""
    attempts: int = 0
    """Failed attempts at the next event."""
    problem: str = ""
    """Reason of the last failure; empty if the next event did not fail."""
    next_us: int | None = None
    """Time of the next attempt; None: none is scheduled."""
    parked: bool = False
    """True if the next event is to be parked: there is no further attempt."""
    outages: int = 0
    """Failures in a row that were no attempts."""
    outage_us: int | None = None
    """Begin of the present outage; None: there is none."""
    excused_us: int = 0
    """Time that outages took from the attempts at the next event."""

    def settled(self, position: int) -> ReceiverProgress:
        """Progress once the event at the position is handled or parked."""
        return ReceiverProgress(max(self.position, position))

    def passed(self, position: int) -> ReceiverProgress:
        """Progress once there is nothing for the receiver up to the position."""
        return self if position <= self.position else replace(self, position=position)


@dataclass(frozen=True)
class Retries:
    """Rule for the attempts at one event."""

    first_seconds: float
    """Wait before the second attempt; doubles with each further one."""
    max_seconds: float
    """Longest wait, unless the receiver asks for a longer one."""
    attempts_max: int | None = None
    """Most attempts; then the event is parked. None: no limit."""
    seconds_max: float | None = None
    """Longest time for all attempts, without outages; then the event is parked. None: no limit."""

    def failed(
        self, progress: ReceiverProgress, failure: Failure, now_us: int, fraction: float = 1.0, since_us: int = 0
    ) -> ReceiverProgress:
        """Progress after a failure. `fraction`: drawn from 0 to 1, so that many receivers do not come back at once; 1: the whole
        wait. `since_us`: begin of the time for all attempts."""
        if failure.kind == "outage":
            outages, first = progress.outages + 1, now_us if progress.outage_us is None else progress.outage_us
            seconds = _jittered(wait_seconds(outages, self.first_seconds, min(self.max_seconds, OUTAGE_SECONDS_MAX)), fraction)
            next_us = now_us + int(seconds * 1e6)
            return replace(progress, problem=failure.reason, next_us=next_us, parked=False, outages=outages, outage_us=first)
        excused_us = progress.excused_us + (0 if progress.outage_us is None else max(0, now_us - progress.outage_us))
        attempts = progress.attempts + 1
        next_us = now_us + int(self._seconds(attempts, failure.asked_seconds, fraction) * 1e6)
        late = self.seconds_max is not None and next_us - since_us - excused_us > int(self.seconds_max * 1e6)
        many = self.attempts_max is not None and attempts >= self.attempts_max
        parked = failure.kind == "final" or late or many
        return ReceiverProgress(
            progress.position, attempts, failure.reason, None if parked else next_us, parked, excused_us=excused_us
        )

    def _seconds(self, attempts: int, asked_seconds: float | None, fraction: float) -> float:
        usual = _jittered(wait_seconds(attempts, self.first_seconds, self.max_seconds), fraction)
        if asked_seconds is None:
            return usual
        asked = asked_seconds if self.seconds_max is None else min(asked_seconds, self.seconds_max)
        # Never less than was asked for.
        return max(usual, asked * (1 + fraction / 10))


def _jittered(seconds: float, fraction: float) -> float:
    return seconds * (0.5 + fraction / 2)


class CannotPark(Exception):
    """Nothing more can be parked. The text is the reason."""


class Receiver(Protocol):
    """Receiver of one event."""

    def stopped(self) -> bool:
        """True if the event is no longer to be given to it."""
        ...

    async def attempt(self) -> None:
        """Handles the event, idempotent by its id; raises if it fails."""
        ...

    def failure(self, error: Exception) -> Failure:
        """Meaning of an error of `attempt`. Raises it if no attempt can follow."""
        ...

    async def park(self, progress: ReceiverProgress, failure: Failure) -> None:
        """Parks the event; returns when that is recorded. Raises CannotPark."""
        ...

    async def wait(self, progress: ReceiverProgress, failure: Failure) -> None:
        """Waits until `progress.next_us`, or less."""
        ...


@dataclass
class Reaction:
    """Events of one receiver, settled one after the other."""

    retries: Retries
    now_us: Callable[[], int]
    fraction: Callable[[], float] = lambda: 1.0
    progress: ReceiverProgress = field(default_factory=ReceiverProgress)

    async def settle(self, receiver: Receiver, position: int, since_us: int = 0) -> bool:
        """Gives the event at the position to the receiver until it is handled or parked; False if the receiver stopped before.
        `since_us`: begin of the time for all attempts."""
        # An earlier receiver may have stopped in the midst of its attempts at another event.
        self.progress = replace(self.progress, attempts=0, parked=False, outages=0, outage_us=None, excused_us=0)
        while not receiver.stopped():
            try:
                await receiver.attempt()
            except Exception as error:
                failure = receiver.failure(error)
            else:
                self.progress = self.progress.settled(position)
                return True
            self.progress = self.retries.failed(self.progress, failure, self.now_us(), self.fraction(), since_us)
            if self.progress.parked:
                try:
                    await receiver.park(self.progress, failure)
                except CannotPark as error:
                    failure = Failure(str(error), "outage")
                    self.progress = self.retries.failed(self.progress, failure, self.now_us(), self.fraction())
                else:
                    self.progress = self.progress.settled(position)
                    return True
            await receiver.wait(self.progress, failure)
        return False
