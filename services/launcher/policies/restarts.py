"""Pause before the restart of a trial whose workers failed or were lost.

The first restart is immediate: most causes are over by then, and a killed worker goes on within a fraction of a second. What
comes again, with nothing saved or validated between, does so for a reason that lasts: a store that is full, a damaged checkpoint,
a network that is down, code that cannot run. Then each pause is twice as long as the one before it.
"""

from __future__ import annotations

from tenuto.schemas.events.run import WorkersOutcome

RESTART_PAUSE_SECONDS_FIRST = 1.0
"""Before the second restart in a row that followed no progress."""
RESTART_PAUSE_SECONDS_MAX = 300.0
"""A cause that is mended is noticed within five minutes, and one that stays costs twelve starts an hour."""
_DOUBLINGS_MAX = 20
"""Beyond this the bound above has long been reached."""
SETBACKS: frozenset[WorkersOutcome] = frozenset({"failed", "lost"})
"""Outcomes after which a trial starts again without having been asked to leave."""


def setbacks_after(setbacks: int, outcome: WorkersOutcome, *, advanced: bool) -> int:
    """Setbacks in a row. `advanced`: the workers that ended had saved a checkpoint or validated."""
    before = 0 if advanced else setbacks
    return before + 1 if outcome in SETBACKS else before


def pause_seconds(setbacks: int) -> float:
    """Before the restart that follows so many setbacks in a row: 0, 1, 2, 4, ... up to the bound."""
    if setbacks < 2:
        return 0.0
    return min(RESTART_PAUSE_SECONDS_MAX, RESTART_PAUSE_SECONDS_FIRST * 2.0 ** min(setbacks - 2, _DOUBLINGS_MAX))
