"""A live run: one that is not done, as the agent keeps it in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tenuto.kernel.backoff import Backoff
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.output import Bars, Matcher
from tenuto.workers.agent.runs import RunRecord
from tenuto.workers.agent.runtimes.runtime import Offsets
from tenuto.workers.agent.secret_masks import Mask

RETRY_SECONDS = 1.0
"""Wait before a run is carried on after an unexpected error, such as a full disk; doubles each time, up to RETRY_SECONDS_MAX."""
RETRY_SECONDS_MAX = 30.0


@dataclass
class LiveRun:
    """A run that is not done."""

    run: RunRecord
    changed: Changed = field(default_factory=Changed)
    """Signal that the run's directive changed, or that it ended."""
    grace: asyncio.TimerHandle | None = None
    """Timer at whose end the workers must have left. None: they were not told to leave."""
    ending: asyncio.Task[None] | None = None
    """Task that kills the workers because they did not leave in time."""
    task: asyncio.Task[None] | None = None
    followed: bool = False
    """True: the run ended only because other parts of its gang did. A restarted agent does not remember it; another part has
    the cause."""
    matcher: Matcher | None = None
    """Matcher of log policies on the run's output. A restarted agent makes it anew: a match may be reported twice, which
    changes nothing."""
    rank_offsets: dict[int, Offsets] | None = None
    """Offsets of each rank's output that is in the spool, if the run is a gang. None: not read yet."""
    bars: Bars = field(default_factory=Bars)
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX))
    """Waits after errors while the run was carried on."""
    pause: asyncio.TimerHandle | None = None
    """Timer after such an error, at whose end the run is carried on again."""
    hide: Mask | None = None
    """Mask of the run's secrets. None: not read yet."""
