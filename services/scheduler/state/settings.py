"""Settings of pools and owners that people made, and the last recorded demand of each pool with a provisioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.events.pool import CapacityDemand


@dataclass(frozen=True, slots=True)
class ProvisionedSlots:
    slots_most: int
    """Slots that as many nodes as the pool may have would offer: more is never wanted at once."""
    wanted: tuple[CapacityDemand, ...] = ()
    """Demand as last recorded."""
    by_workspace: bool = False
    """True: costs are limited by workspace, so gangs of different workspaces are told apart."""
    by_image: bool = False
    """True: its nodes may run in the images of trials as a whole, so gangs of different images are told apart."""


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    name: Literal["priority", "fair_share", "fifo"] = "priority"
    half_life_us: int = 0
    """Time in which past use is forgotten by half; 0: past use does not count."""


@dataclass(frozen=True, slots=True)
class Share:
    weight: float = 1.0
    max_slots: int | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """Slots of one agent taken out of service by users. Kept while the agent is absent."""

    agent: bool = False
    slots: tuple[int, ...] = ()
    """Numbers of the slots, sorted."""
