"""Sizes of the commits of one lane of reports. Pure but for its memory of the last commit.

Two lanes may be committed by the same loop, one after the other. Where the reports of one should not wait behind the other's,
that other one is given small commits: as many reports as take a few milliseconds, or as long as a commit of the first one takes,
so that both have the same share of the loop on a machine that is slow or has much to record.
"""

from __future__ import annotations

COMMIT_REPORTS_MAX = 250
"""Most reports in one commit: enough to share its cost, few enough that another agent's reports do not wait long for their
turn."""
YIELDING_REPORTS_MIN, YIELDING_REPORTS_MAX = 5, 50
"""Least and most reports in one commit of a lane that yields to another: with fewer nearly all the time goes into the commit
itself; more than 50 made it 20 % cheaper, and what waits behind them four times as late."""
YIELDING_SECONDS = 0.01
"""Duration of a commit that the other lane's reports hardly notice: about that of a commit of a few reports."""
YIELDING_GROWTH = 2
"""Reports by which the next commit is larger after one that was fast enough."""
IDLE_SECONDS = 10.0
"""Time without a commit after which a lane counts as idle. It covers the pause between two validations of a fast search."""


class CommitSizes:
    def __init__(self, yields_to: CommitSizes | None = None) -> None:
        """`yields_to`: the lane whose reports should not wait behind this one's."""
        self._yields_to = yields_to
        self._size = YIELDING_REPORTS_MIN
        self._last: tuple[float, float] | None = None
        """Time of the last commit, and its duration, in seconds of a monotonic clock."""

    def most(self, now: float) -> int:
        """Most reports of the next commit."""
        if self._yields_to is None:
            return COMMIT_REPORTS_MAX
        return YIELDING_REPORTS_MAX if self._yields_to.idle(now) else self._size

    def idle(self, now: float) -> bool:
        return self._last is None or now - self._last[0] > IDLE_SECONDS

    def committed(self, reports: int, seconds: float, now: float) -> None:
        """Notes a commit of so many reports, which took so long and ended `now`."""
        self._last = now, seconds
        if self._yields_to is not None:
            others = self._yields_to._last
            self._size = fitting_size(self._size, reports, seconds, max(YIELDING_SECONDS, others[1] if others else 0.0))


def fitting_size(size: int, reports: int, seconds: float, seconds_max: float) -> int:
    """Size of the next commit after one of `reports` reports: as many as take `seconds_max`. One that was smaller than it might
    have been is no evidence for a larger one."""
    if seconds > seconds_max:
        return max(YIELDING_REPORTS_MIN, min(size, int(reports * seconds_max / seconds)))
    return min(size + YIELDING_GROWTH, YIELDING_REPORTS_MAX) if reports >= size else size
