"""Growing waits between attempts, and warnings that are repeated less and less often. Every loop that retries uses both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from tenuto.kernel.reactions import wait_seconds

SAY_SECONDS_FIRST = 1.0
"""Pause before the same warning is logged a second time; it doubles each time, so that a long outage does not fill a disk."""
SAY_SECONDS_MAX = 60.0


class Backoff:
    """Wait times of one retrying loop, by its number of failures in a row."""

    def __init__(self, first_seconds: float, max_seconds: float) -> None:
        self._first_seconds, self._max_seconds = first_seconds, max_seconds
        self.failures = 0

    def failed(self) -> float:
        """Counts one more failure; returns the wait before the next attempt, in seconds."""
        self.failures += 1
        return wait_seconds(self.failures, self._first_seconds, self._max_seconds)

    def worked(self) -> None:
        self.failures = 0


class Seldom:
    """Warnings of one retrying loop: a new text is logged at once, the same text after growing pauses, with the number of
    times that it was left out."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = monotonic) -> None:
        self._logger, self._now = logger, now
        self._said, self._due = "", 0.0
        self._times = self._unsaid = 0

    def warn(self, text: str) -> None:
        now = self._now()
        if text != self._said:
            self._said, self._times, self._unsaid = text, 0, 0
        elif now < self._due:
            self._unsaid += 1
            return
        self._times += 1
        self._due = now + wait_seconds(self._times, SAY_SECONDS_FIRST, SAY_SECONDS_MAX)
        more, self._unsaid = f" (and {self._unsaid} times since the last message)" if self._unsaid else "", 0
        self._logger.warning("%s%s", text, more)

    def over(self, text: str = "") -> None:
        """The cause is gone. Logs `text` if any warning was logged before."""
        if self._said and text:
            self._logger.info("%s", text)
        self._said = ""
