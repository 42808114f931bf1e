"""Waits of the client, and the limits at which it gives up. Pure but for the clock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tenuto.client.errors import Away, ClientError, Refused, Unreachable

PATIENCE_SECONDS = 30.0
"""Longest time in all for one request that may be sent again: the database restarts in less."""
PAUSE_SECONDS_MIN = 0.2
PAUSE_SECONDS_MAX = 15.0
RECONNECT_SECONDS = 1.0
OUTAGE_SECONDS_MAX = 600.0
"""Longest outage before a wait gives up: the database restarts in seconds, a machine in minutes."""
STREAM_TIMEOUT_SECONDS = 60.0
"""Longest silence of a live stream, which sends a comment more often than this: beyond it the connection is dead."""

Notice = Callable[[str], None]


class Tries:
    """Tries of one request that may be sent again: pauses that double, with jitter, within a time for all together."""

    def __init__(self, patience_seconds: float, *, answered: bool) -> None:
        """Tries within `patience_seconds`. `answered`: True: the cluster has answered this client before, so its address is
        right."""
        self._until = time.monotonic() + patience_seconds
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._answered = answered

    def pause(self, error: ClientError) -> float:
        """Seconds until the next try. Raises `error` if there is none."""
        if not isinstance(error, Away) or (isinstance(error, Unreachable) and not self._answered):
            raise error
        seconds = max(self._pause_seconds * random.uniform(0.5, 1.0), error.retry_after_seconds or 0.0)
        if time.monotonic() + seconds > self._until:
            raise error
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        return seconds


class ClusterOutage:
    """Outage of the cluster during a wait: the caller is told once, and it gives up after OUTAGE_SECONDS_MAX."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._since: float | None = None
        self._pause_seconds = RECONNECT_SECONDS

    def pause(self, error: ClientError) -> float:
        """Seconds until the next try. Raises `error` if a retry is of no use, or if it has lasted too long."""
        if isinstance(error, Refused):
            raise error
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._pause_seconds = RECONNECT_SECONDS
            self._notice(f"{error} This command waits, for at most {OUTAGE_SECONDS_MAX / 60:.0f} minutes.")
        elif now - self._since > OUTAGE_SECONDS_MAX:
            raise error
        seconds = self._pause_seconds * random.uniform(0.8, 1.0)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
        return seconds

    def over(self) -> None:
        if self._since is not None:
            self._notice("The cluster answers again.")
        self._since = None

    @property
    def lasts(self) -> bool:
        return self._since is not None


class Deadline:
    """Time at which a wait ends; without one it never does."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    def within(self, seconds: float) -> float:
        """Seconds to wait: at most `seconds`, and no more than are left."""
        return seconds if self._until is None else max(0.05, min(seconds, self._until - time.monotonic()))

    @property
    def bounded(self) -> bool:
        return self._until is not None

    @property
    def over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until
