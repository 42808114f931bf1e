"""Events about the slots of a pool and who may use them. Owner: scheduler. Stream: pool/<pool>."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, Reason, event


class AgentSlots(Model):
    """Part of a gang that runs on one agent; or an auxiliary trial, which has no slots there."""

    agent_id: str
    slot_ids: tuple[int, ...]


class PoolEvent(EventData):
    OWNER: ClassVar[str] = "scheduler"
    STREAM: ClassVar[str] = "pool"

    pool: str

    def stream_key(self) -> str:
        return self.pool


@event("AllocationGranted")
class AllocationGranted(PoolEvent):
    allocation_id: str
    trial_id: str
    experiment_id: int
    slots: tuple[AgentSlots, ...] = Field(min_length=1)
    reason: Reason
    backfill_until_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Reserved start of the larger gang that this trial was started ahead of; from this time on the gang may preempt it. None:
    the trial is not a backfill."""
    turn_until_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """End of the experiment's turn, up to which it is entitled to one gang larger than its fair share. None: the gang fits the
    share."""


@event("AllocationPreempted")
class AllocationPreempted(PoolEvent):
    """The workers are asked to save a checkpoint and leave; the slots are free when AllocationReleased is recorded."""

    allocation_id: str
    trial_id: str
    experiment_id: int
    kill: bool = False
    """True: the workers are killed without a checkpoint."""
    reason: Reason


@event("AllocationResized")
class AllocationResized(PoolEvent):
    """The workers are asked to save a checkpoint and leave; as soon as they have, the same trial is granted `slots`. Until
    then the slots that it gains are kept for it, and those that it loses are being freed. A second resize replaces the first."""

    allocation_id: str
    trial_id: str
    experiment_id: int
    slots: tuple[AgentSlots, ...]
    """Slots of the trial's next allocation."""
    reason: Reason
    """Rule of the resize; its numbers include slots_from and slots_to."""


@event("AllocationReleased")
class AllocationReleased(PoolEvent):
    allocation_id: str
    trial_id: str
    experiment_id: int
    reason: Reason


class CapacityDemand(Model):
    """Gangs that wait and are alike in what a node must offer them."""

    slots: int
    """Slots of one gang."""
    count: int
    """Number of such gangs."""
    locality: str = Field(default="any", exclude_if=lambda value: value == "any")
    """agent: all slots of a gang on one node; rack: on nodes with the same rack label."""
    device: str = Field(default="", exclude_if=lambda value: not value)
    """Part of the device's name, in lower case."""
    labels: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Labels that its agents must have; `runtime:docker` where it names an image."""
    image: str = Field(default="", exclude_if=lambda value: not value)
    """Container image that a node may pull ahead for them. Empty: none, also where it takes a user's credentials, or has to be
    there."""
    node_image: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: they run as well on a node that runs in `image` as a whole. Told of pools that may have such nodes."""
    workspace: str = "default"
    """Workspace of the first such gang's experiment."""
    experiment_id: int
    """Experiment of the first such gang."""


@event("CapacityWanted")
class CapacityWanted(PoolEvent):
    """Gangs that wait in a pool whose nodes a provisioner starts, and that limits and quotas would let start: those that no free
    slots, nor slots being freed for them, will serve. The whole of it, in the queue's order; recorded when it changes."""

    demands: tuple[CapacityDemand, ...]


@event("SlotsReserved")
class SlotsReserved(PoolEvent):
    """The trial is next and must wait. Slots that become free are kept for it, and it stays before all others of its priority
    until it starts; otherwise other owners, who may hold fewer slots by then, could overtake it."""

    trial_id: str
    experiment_id: int
    reason: Reason
