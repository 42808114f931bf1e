"""Who may use which slots. Owner: scheduler. Stream: pool/<pool>."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, Reason, event


class AgentSlots(Model):
    """The part of a gang that runs on one agent; or an auxiliary trial, which has no slots there."""

    agent_id: str
    slot_ids: tuple[int, ...]


class Pool(EventData):
    OWNER: ClassVar[str] = "scheduler"
    STREAM: ClassVar[str] = "pool"

    pool: str

    def stream_key(self) -> str:
        return self.pool


@event("AllocationGranted")
class AllocationGranted(Pool):
    allocation_id: str
    trial_id: str
    experiment_id: int
    slots: tuple[AgentSlots, ...] = Field(min_length=1)
    reason: Reason
    backfill_until_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Set where the trial started ahead of a larger gang: that gang's reserved start. From then on the gang may preempt it."""
    turn_until_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Set where its experiment's gangs are larger than its fair share and it is its turn: it is entitled to one until then."""


@event("AllocationPreempted")
class AllocationPreempted(Pool):
    """The workers are asked to save a checkpoint and leave; the slots are free when AllocationReleased is recorded."""

    allocation_id: str
    trial_id: str
    experiment_id: int
    kill: bool = False
    """True: do not wait for a checkpoint."""
    reason: Reason


@event("AllocationResized")
class AllocationResized(Pool):
    """The workers are asked to save a checkpoint and leave; when they have, the same trial is granted `slots` at once. Until then
    the slots that it gains are kept for it, and those that it loses are being freed. A second one replaces the first."""

    allocation_id: str
    trial_id: str
    experiment_id: int
    slots: tuple[AgentSlots, ...]
    """What the trial's next allocation has."""
    reason: Reason
    """Its numbers have slots_from and slots_to."""


@event("AllocationReleased")
class AllocationReleased(Pool):
    allocation_id: str
    trial_id: str
    experiment_id: int
    reason: Reason


@event("SlotsReserved")
class SlotsReserved(Pool):
    """The trial is next and must wait. What becomes free is kept for it, and it is before all others of its priority until it
    starts: others could hold less than its owner by then, and would be before it."""

    trial_id: str
    experiment_id: int
    reason: Reason
