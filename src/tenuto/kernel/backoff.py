"""Waiting longer each time, and saying the same thing seldom: what every loop that tries again has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

SAY_SECONDS_FIRST = 1.0
"""Before the same warning is said a second time; doubles each time, so that a long outage fills no disk with it."""
SAY_SECONDS_MAX = 60.0


def wait_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """After so many failures in a row: doubles from `first_seconds` up to `max_seconds`."""
    return min(max_seconds, first_seconds * 2.0 ** min(max(failures - 1, 0), 60))


class Backoff:
    """Counts failures in a row."""

    def __init__(self, first_seconds: float, max_seconds: float) -> None:
        self._first_seconds, self._max_seconds = first_seconds, max_seconds
        self.failures = 0

    def failed(self) -> float:
        """Counts one more; returns how long to wait, in seconds."""
        self.failures += 1
        return wait_seconds(self.failures, self._first_seconds, self._max_seconds)

    def worked(self) -> None:
        self.failures = 0


class Seldom:
    """Warnings that come again and again: a new one at once, the same one after growing times, with how often it was not said."""

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
        more, self._unsaid = f" (and {self._unsaid} times since this was said last)" if self._unsaid else "", 0
        self._logger.warning("%s%s", text, more)

    def over(self, text: str = "") -> None:
        """It works again: `text` says so, if anything was said before."""
        if self._said and text:
            self._logger.info("%s", text)
        self._said = ""
