"""Sizes of the commits of one lane of reports. Pure but for its memory of the last commits.

Two lanes may be committed by the same loop, one after the other. Where the reports of one should not wait behind the other's,
that other one is given small commits.
"""

from __future__ import annotations

import math

COMMIT_REPORTS_MAX = 250
"""Most reports in one commit: enough to share its cost, few enough that another agent's reports do not wait long for their
turn."""
YIELDING_REPORTS_MIN, YIELDING_REPORTS_MAX = 10, 50
"""Least and most reports in one commit of a lane that yields to another. With 10 a commit took about twice the time of one with
a single report, and others waited 2 to 3 times as long as alone; with 5 both got slower, as nearly all the time went into the
commits themselves; with 50 others waited 8 times as long."""
SECONDS_OF_A_REPORT = 0.001
"""Part of the other lane's commit that allows one more report: where a commit takes long before its first report, such as with a
database far away, more reports in it delay the other lane little."""
LEAST_GROWTH = 1.02
"""Factor by which the least duration of a commit that is remembered grows with each further one, as machines become slower."""
IDLE_SECONDS = 10.0
"""Time without a commit after which a lane counts as idle. It covers the pause between two validations of a fast search."""


class CommitSizes:
    def __init__(self, yields_to: CommitSizes | None = None) -> None:
        """`yields_to`: the lane whose reports should not wait behind this one's."""
        self._yields_to = yields_to
        self._last_at: float | None = None
        """Time of the last commit, in seconds of a monotonic clock."""
        self._least_seconds = math.inf
        """Least recent duration of a commit: one that waited for the other lane's says nothing."""

    def most(self, now: float) -> int:
        """Most reports of the next commit."""
        other = self._yields_to
        if other is None:
            return COMMIT_REPORTS_MAX
        if other.idle(now):
            return YIELDING_REPORTS_MAX
        return int(min(max(other._least_seconds / SECONDS_OF_A_REPORT, YIELDING_REPORTS_MIN), YIELDING_REPORTS_MAX))

    def idle(self, now: float) -> bool:
        return self._last_at is None or now - self._last_at > IDLE_SECONDS

    def committed(self, seconds: float, now: float) -> None:
        """Notes a commit that took so long and ended `now`."""
        self._last_at = now
        self._least_seconds = min(seconds, self._least_seconds * LEAST_GROWTH)
