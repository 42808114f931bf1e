"""Pools whose nodes a provisioner starts, and what was last said that they want."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.pool import CapacityDemand


@dataclass(frozen=True, slots=True)
class ProvisionedPool:
    slots_most: int
    """Slots that as many nodes as the pool may have would offer: more is never wanted at once."""
    wanted: tuple[CapacityDemand, ...] = ()
    """As last recorded."""
