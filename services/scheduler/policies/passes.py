"""One pass over one pool: the parts that decide together, and who knows whom.

Each part has one job, and knows only those above it. It is given the rules, through which it reaches the first two, and the
other parts that it asks:

    Decisions       what was decided so far, and the drafts of it
    Supply          free slots, and slots being freed
    PolicyRules     what the policy answers (`priority`, `fair_share`, `fifo`)
    Quotas          what limits and quotas leave
    Shrinking       elastic trials give up slots
    Reclaiming      who shrinks and who is preempted for a gang
    PlacementRooms  the same for a gang with constraints
    Reservations    starts and rooms that held gangs are promised
    Starting        which slots a gang is granted now
    Serving         the phases that a gang goes through when it is its turn
    Backfill        gangs that start ahead of held ones
    Growth          elastic trials grow into what is left

The policy's queue, above all of them, says who is served next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tenuto.schemas.events import EventData
from tenuto.schemas.sentences.waiting import Waiting
from tenuto.services.scheduler.policies.backfill import Backfill
from tenuto.services.scheduler.policies.decisions import Decisions
from tenuto.services.scheduler.policies.growing import Growth
from tenuto.services.scheduler.policies.quotas import QuotaKeeping, Quotas
from tenuto.services.scheduler.policies.reclaiming import Reclaiming
from tenuto.services.scheduler.policies.reservations import Reservations
from tenuto.services.scheduler.policies.rooms import PlacementRooms
from tenuto.services.scheduler.policies.rules import PolicyRules
from tenuto.services.scheduler.policies.serving import Serving
from tenuto.services.scheduler.policies.shrinking import Shrinking
from tenuto.services.scheduler.policies.starting import Starting
from tenuto.services.scheduler.policies.supply import Supply
from tenuto.services.scheduler.state import Pool, State

R = TypeVar("R", bound=PolicyRules)


class PassParts(Generic[R]):
    """Parts of one pass. Construction reads no state; each part looks up what it needs on first use."""

    def __init__(
        self,
        state: State,
        pool: Pool,
        now_us: int,
        notes: dict[int, Waiting] | None,
        policy: str,
        rules: Callable[[Decisions, Supply], R],
    ) -> None:
        self.decisions = Decisions(state, pool, now_us, notes, policy)
        self.supply = Supply(self.decisions)
        self.rules = rules(self.decisions, self.supply)
        self.quotas = Quotas(self.rules)
        self.shrinking = Shrinking(self.rules)
        self.reclaiming = Reclaiming(self.rules, self.shrinking)
        self.quota_keeping = QuotaKeeping(self.rules, self.quotas, self.reclaiming)
        self.rooms = PlacementRooms(self.rules, self.shrinking, self.reclaiming)
        self.reservations = Reservations(self.rules, self.shrinking, self.rooms)
        self.starting = Starting(self.rules, self.quotas, self.reservations.in_rooms)
        self.serving = Serving(
            self.rules, self.quotas, self.shrinking, self.reclaiming, self.rooms, self.reservations, self.starting
        )
        self.backfill = Backfill(self.rules, self.quotas, self.reservations, self.starting)
        self.growth = Growth(self.rules, self.quotas, self.shrinking)

    @property
    def slots_wait_for_nobody(self) -> bool:
        """No gang waits that could use free slots as soon as there are enough."""
        return not (self.serving.blocked or self.supply.claimed)


def planned(parts: PassParts[R], serve_queue: Callable[[PassParts[R]], None]) -> list[EventData]:
    """Grants, preemptions and changes of size that should happen now, in order. Empty when there is nothing to do. `serve_queue`:
    serves those that wait, in the policy's order."""
    pool = parts.decisions.pool
    if pool.queue:
        serve_queue(parts)
    if (pool.elastic or parts.decisions.drafts) and parts.slots_wait_for_nobody:
        parts.growth.grow()
    return parts.decisions.drafts
