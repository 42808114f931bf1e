"""The end of an agent's time: when nothing new may begin on it, when what runs has to save, and when the agent ends.

An agent that a batch system started (Slurm, or whatever gives machines for a time) knows when it will be killed. Its heartbeats
announce that in two steps, `soon` and `now`; a step is never taken back. An agent on a machine of a cloud learns it while it runs
(`end_notices`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Heartbeat, HeartbeatReply
from tenuto.schemas.events.agent import TIME_US_MAX, Leaving
from tenuto.workers.agent.change_signal import Changed

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Pause between two looks at the clock: a step is announced at most that late."""
HEARD_MIN = 2
"""Answered heartbeats with the last step after which an agent without work may end: what was granted before the step arrived has
come with the second answer."""
SIGNAL_SECONDS_MAX = 20.0
"""Time that workers get after SIGTERM to end before they are told by the agent itself, which takes up to 10 s more, where no
setting says otherwise: Slurm kills 30 s after its signal (KillWait)."""
STOP_SECONDS = 10.0
"""Part of the time to save that is kept for the agent's own end, should workers not have left by then."""
NOTICE_SECONDS_MIN = 30.0
"""Least time that a notice of the machine's provider is taken to leave, whatever the clocks of both say: the machine still runs,
so it is worth the try to save."""
GONE_SECONDS_MAX = 5.0
"""Longest time in which the launcher is told that the agent ends; after half a lease there is little to gain from it."""
GONE_SECONDS_BETWEEN = 0.5
"""Longest pause before the launcher is told again: most writes of the record take milliseconds."""
STEPS: tuple[Leaving, ...] = ("", "soon", "now")


class BadEnd(ValueError):
    """The settings of an agent's end do not fit; `str(error)` says why and what to do."""


class Departure:
    """Announced to the launcher with each heartbeat (`leaving`, `leaves_at_us`, `notice`)."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises BadEnd."""
        self._clock, self._settings = clock, settings
        self._changed = Changed()
        """Signal that `leaving` has changed: the next heartbeat is due at once."""
        self.leaving: Leaving = ""
        self.leaves_at_us: int | None = None
        self.notice = ""
        """Words of the machine's provider, if it gave notice."""
        self._heard = 0
        """Answered heartbeats with the present step."""
        self._ends_at: float | None = None
        """Monotonic time at which workers that are left are ended by the agent itself. None: they are not to end yet."""
        self._idle_since = clock.monotonic()
        if settings.leave_at:
            self.leaves_at_us = self._checked_end(settings)

    def _checked_end(self, settings: Settings) -> int:
        if not 0 < settings.leave_at * 1e6 <= TIME_US_MAX:
            raise BadEnd(f"TENUTO_LEAVE_AT is {settings.leave_at:g}, but must be a time in seconds since 1970.")
        end_us = round(settings.leave_at * 1e6)
        if not settings.leave_save_seconds <= settings.leave_closed_seconds:  # also where one is no number
            raise BadEnd(
                f"TENUTO_LEAVE_CLOSED_SECONDS is {settings.leave_closed_seconds:g}, but must be at least"
                f" TENUTO_LEAVE_SAVE_SECONDS ({settings.leave_save_seconds:g})."
            )
        left = (end_us - self._clock.now_us()) / 1e6
        if left <= settings.leave_closed_seconds:
            at = datetime.fromtimestamp(settings.leave_at, UTC).isoformat(timespec="seconds")
            raise BadEnd(
                f"The agent's time ends at {at}, {max(0.0, left):.0f} s from now, and nothing begins in its last"
                f" {settings.leave_closed_seconds:g} s: give it more time, or set TENUTO_LEAVE_CLOSED_SECONDS."
            )
        return end_us

    @property
    def by_signal(self) -> bool:
        """True: SIGTERM means that the agent's time ends, as it does for the job of a batch system, or for a pod."""
        return self.leaves_at_us is not None or self._settings.leave_signal_seconds > 0

    @property
    def signal_seconds_max(self) -> float:
        """Time that workers get after SIGTERM to end before they are told by the agent itself."""
        given = self._settings.leave_signal_seconds
        return max(0.0, given - STOP_SECONDS) if given > 0 else SIGNAL_SECONDS_MAX

    @property
    def seconds_left(self) -> float | None:
        """Time that workers have until the agent itself has to end them. None: the agent knows no end."""
        if self.leaves_at_us is None:
            return None
        return max(0.0, (self.leaves_at_us - self._clock.now_us()) / 1e6 - STOP_SECONDS)

    def learn_end(self, at_us: int) -> None:
        """The machine's provider has given notice of its end. The steps follow when it comes near; an earlier end stays."""
        at_us = max(at_us, self._clock.now_us() + round(NOTICE_SECONDS_MIN * 1e6))
        if self.leaves_at_us is None or at_us < self.leaves_at_us:
            self.leaves_at_us = at_us

    def announce(self, step: Leaving, seconds_max: float | None = None) -> None:
        """Takes a step, unless it was taken. `seconds_max`: time from now after which workers that are left are ended; by
        default the time to save."""
        if step == "now":
            seconds = max(0.0, self._settings.leave_save_seconds - STOP_SECONDS) if seconds_max is None else seconds_max
            ends_at = self._clock.monotonic() + seconds
            self._ends_at = ends_at if self._ends_at is None else min(self._ends_at, ends_at)
        if STEPS.index(step) > STEPS.index(self.leaving):
            self.leaving, self._heard = step, 0
            logger.info(
                "the agent's time ends: %s", "nothing new begins here" if step == "soon" else "what runs saves and leaves"
            )
            self._changed.notify()

    def heard(self, step: Leaving) -> None:
        """The launcher has answered a heartbeat with this step, and its assignments were taken."""
        if step and step == self.leaving:
            self._heard += 1

    async def pause(self, seconds: float, announced: Leaving) -> None:
        """Sleeps until the next heartbeat is due: at once if there is a step that was not announced yet."""
        changed = self._changed.next()
        if self.leaving == announced and seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), seconds)
        await asyncio.sleep(0)

    async def over(self, allocations: Callable[[], tuple[str, ...]]) -> None:
        """Returns when the agent may end: its end was announced and it has no more work, or its time is up. `allocations`: those
        whose end is not on record yet."""
        while True:
            busy = bool(allocations())
            self._look(busy)
            if self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
                return
            if self._heard >= HEARD_MIN and not busy:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, busy: bool) -> None:
        now = self._clock.monotonic()
        if busy:
            self._idle_since = now
        elif 0 < self._settings.leave_idle_seconds <= now - self._idle_since:
            self.announce("soon")
        if self.leaves_at_us is None:
            return
        left = (self.leaves_at_us - self._clock.now_us()) / 1e6
        if left <= self._settings.leave_save_seconds:
            self.announce("now", self.seconds_left)
        elif left <= self._settings.leave_closed_seconds:
            self.announce("soon")


async def say_gone(bus: Client, heartbeat: Heartbeat, seconds: float) -> None:
    """Repeats the agent's last heartbeat, marked as such, every `seconds` or more often, until the launcher has recorded it, for
    GONE_SECONDS_MAX at most."""
    last = heartbeat.model_copy(update={"gone": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_SECONDS_MAX):
            while True:
                if await _is_recorded(bus, last, seconds):
                    return
                await asyncio.sleep(min(seconds, GONE_SECONDS_BETWEEN))


async def _is_recorded(bus: Client, heartbeat: Heartbeat, seconds: float) -> bool:
    """True if the launcher has recorded the heartbeat, or refuses it."""
    with contextlib.suppress(NatsError, OSError, ValidationError):
        reply = await bus.request(subjects.heartbeat(heartbeat.agent_id), heartbeat.to_json(), timeout=seconds)
        answer = HeartbeatReply.from_json(reply.data)
        return bool(answer.error) or answer.assignments is not None
    return False
