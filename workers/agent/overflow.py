"""The choice between two lanes for the facts of one allocation. Pure.

Facts go by the lane `tracker`, and there all allocations of an agent are in one order. So an allocation that makes more facts
than can be recorded at once gets a lane of its own kind, `overflow`, in which only such allocations wait for each other: what
the others report does not stand behind its facts. An allocation's own order is kept, because its next facts are numbered in one
lane only when all of its facts in the other lane are committed.
"""

from __future__ import annotations

from typing import Literal

OVERFLOW_REPORTS = 20
"""Facts of one allocation that may be on their way by the lane `tracker`, and as many may wait. A trial that validates and saves
ten times a second has less than that under way even where a commit takes a second; 20 are committed within some milliseconds."""

FactLane = Literal["tracker", "overflow"]


def room_in(lane: FactLane, in_tracker: int, in_overflow: int, queued: int) -> int:
    """Number of an allocation's queued facts that may be numbered in this lane now.

    `in_tracker`, `in_overflow`: its facts that are numbered in these lanes and not committed. `queued`: those without a number.
    """
    if in_overflow:
        return queued if lane == "overflow" and not in_tracker else 0
    if queued > OVERFLOW_REPORTS:
        return queued if lane == "overflow" and not in_tracker else 0
    return min(queued, max(OVERFLOW_REPORTS - in_tracker, 0)) if lane == "tracker" else 0
