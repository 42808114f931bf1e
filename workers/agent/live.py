"""A run that is not done, as the agent has it in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tenuto.kernel.backoff import Backoff
from tenuto.workers.agent.changed import Changed
from tenuto.workers.agent.hiding import Hide
from tenuto.workers.agent.output import Matcher
from tenuto.workers.agent.runs import Run
from tenuto.workers.agent.runtimes.runtime import Offsets

RETRY_SECONDS = 1.0
"""Before a run is carried on after an unexpected error, such as a full disk; doubles each time, up to RETRY_SECONDS_MAX."""
RETRY_SECONDS_MAX = 30.0


@dataclass
class Live:
    """A run that is not done."""

    run: Run
    changed: Changed = field(default_factory=Changed)
    """Its directive changed, or it ended."""
    grace: asyncio.TimerHandle | None = None
    """Until it has to have left."""
    ending: asyncio.Task[None] | None = None
    """It has not left in time, and is killed."""
    task: asyncio.Task[None] | None = None
    followed: bool = False
    """It ended only because other parts of its gang did. Forgotten by an agent that is started again: another part tells why."""
    matcher: Matcher | None = None
    """Of what it prints. An agent that is started again makes it anew: a match may be reported twice, which changes nothing."""
    rank_offsets: dict[int, Offsets] | None = None
    """Of a gang: what of each rank's output is in the spool. None: not read yet."""
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX))
    """Of errors while it was carried on."""
    pause: asyncio.TimerHandle | None = None
    """After such an error, until it is carried on again."""
    hide: Hide | None = None
    """Puts marks in place of its secrets. None: not read yet."""
