"""A clock that stands still while its process does. Pure but for what it is told.

Whoever watches others with deadlines may be stopped itself: by a busy machine, a debugger, a frozen container. What it missed in
that time is not the others' silence, so it is not counted against them.
"""

from __future__ import annotations


class ObserverClock:
    """`tick` is called at least every `pause_seconds_max`; whatever comes later than that is the observer's own lag."""

    def __init__(self, pause_seconds_max: float, now: float) -> None:
        """`now`: monotonic seconds, here and below."""
        self._pause_seconds_max, self._last = pause_seconds_max, now
        self.seconds = 0.0
        """That the observer could observe."""
        self.lag_seconds = 0.0
        """That it could not, in all."""

    def tick(self, now: float) -> None:
        gap = max(0.0, now - self._last)
        observed = min(gap, self._pause_seconds_max)
        self.seconds += observed
        self.lag_seconds += gap - observed
        self._last = now
