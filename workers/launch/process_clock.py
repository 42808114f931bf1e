"""A clock that stops while its own process is stopped. Pure: the time is passed in.

A process that watches others with deadlines may be stopped itself: by a busy machine, a debugger, a frozen container. Time that
it missed is no silence of the others, so it does not count against them.
"""

from __future__ import annotations


class ObserverClock:
    """`tick` is called at least every `pause_seconds_max`; any further delay is the observer's own lag."""

    def __init__(self, pause_seconds_max: float, now: float) -> None:
        """`now`: monotonic seconds, here and below."""
        self._pause_seconds_max, self._last = pause_seconds_max, now
        self.seconds = 0.0
        """Seconds in which the observer could observe."""
        self.lag_seconds = 0.0
        """Seconds in which it could not."""

    def tick(self, now: float) -> None:
        gap = max(0.0, now - self._last)
        observed = min(gap, self._pause_seconds_max)
        self.seconds += observed
        self.lag_seconds += gap - observed
        self._last = now
