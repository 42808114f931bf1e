"""Pause before the next start of a trial whose workers ended without progress, however they ended.

The first restart is immediate: most causes are over by then, and a killed worker goes on within a fraction of a second. What
comes again, with nothing new saved or validated between, does so for a reason that lasts: a store that is full, a damaged
checkpoint, a network that is down, code that cannot run, or that leaves by itself. Then each pause is twice as long as the one
before it. Workers that were asked to leave have no such reason; only a pool in which a trial hardly ever comes to train makes it
pause."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenuto.schemas.events.run import WorkersOutcome

RESTART_PAUSE_SECONDS_FIRST = 1.0
"""Pause before the second restart in a row that followed no progress."""
RESTART_PAUSE_SECONDS_MAX = 300.0
"""Longest pause: a mended cause is noticed within five minutes, and a lasting one costs twelve starts an hour."""
ASKED_FREE = 5
"""Ends in a row, as the scheduler or the search asked, that are followed by no pause: it is usual that a trial makes way several
times while the work of others arrives."""
_DOUBLINGS_MAX = 20
"""Most doublings that are computed: the bound above is reached long before."""

SETBACKS: frozenset[WorkersOutcome] = frozenset({"failed", "lost"})
"""Outcomes that are a setback also for workers that had got further, or were asked to leave."""


@dataclass(frozen=True)
class Standstill:
    """Ends of a trial's workers in a row with nothing new saved or validated between them."""

    setbacks: int = 0
    """Number of ends that were not requested."""
    asked: int = 0
    """Ends that the scheduler or the search had asked for."""


def after(before: Standstill, outcome: WorkersOutcome, *, asked: bool, advanced: bool) -> Standstill:
    """`asked`: the workers had been told to leave. `advanced`: they had saved something new, or validated."""
    before = Standstill() if advanced else before
    if outcome in SETBACKS:
        return replace(before, setbacks=before.setbacks + 1)
    if advanced:
        return before
    return replace(before, asked=before.asked + 1) if asked else replace(before, setbacks=before.setbacks + 1)


def pause_of(standstill: Standstill, outcome: WorkersOutcome, *, asked: bool) -> tuple[int, float]:
    """(ends in a row, seconds) of the pause before the next start."""
    if asked and outcome not in SETBACKS:
        return standstill.asked, pause_seconds(standstill.asked - ASKED_FREE)
    return standstill.setbacks, pause_seconds(standstill.setbacks)


def pause_seconds(setbacks: int) -> float:
    """Pause before the restart after `setbacks` setbacks in a row: 0, 1, 2, 4, ... up to the bound."""
    if setbacks < 2:
        return 0.0
    return min(RESTART_PAUSE_SECONDS_MAX, RESTART_PAUSE_SECONDS_FIRST * 2.0 ** min(setbacks - 2, _DOUBLINGS_MAX))
