"""Offer of a node, and whether it serves a demand. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tenuto.schemas.events.agent import IMAGES_LABEL, AgentJoined
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.state.nodes import ProvisionedPool

OFFERED_SECONDS = 3_600.0
"""Time for which the real offer of a type's last node is trusted: a defective node must not speak for its type for ever."""
RACK = "rack="
"""Prefix of the label that says which nodes are near each other."""


class Offer(NamedTuple):
    slots: int
    devices: tuple[str, ...]
    """Names of devices, in lower case; empty: not known."""
    labels: tuple[str, ...]

    @property
    def rack(self) -> str:
        return next((label for label in self.labels if label.startswith(RACK)), "")


def of_type(pool: ProvisionedPool, node_type: NodeType, now_us: int) -> Offer:
    """Offer of a new node of the type. The real offer of the last node is trusted more than the settings."""
    seen = pool.offered.get(node_type.name)
    devices = (node_type.device.lower(),) if node_type.device else ()
    labels = (*node_type.labels, IMAGES_LABEL) if node_type.images else node_type.labels
    if seen is None or now_us - seen.seen_at_us >= OFFERED_SECONDS * 1e6:
        return Offer(node_type.slots, devices, labels)
    return Offer(seen.slots, seen.devices, labels)


def of_agent(agent: AgentJoined) -> Offer:
    devices = tuple(sorted({slot.device.lower() for slot in agent.slots}))
    labels = (*agent.labels, IMAGES_LABEL) if agent.runs_images else agent.labels
    return Offer(len(agent.slots), devices, labels)


def serves(offer: Offer, device: str, labels: tuple[str, ...]) -> bool:
    if device and offer.devices and not any(device in name for name in offer.devices):
        return False
    return all(label in offer.labels for label in labels)


def nodes_for(offer: Offer, demand: CapacityDemand) -> int:
    """Nodes with this offer that one gang needs; 0: no number of them serves it."""
    slots = slots_of(demand)
    if offer.slots < 1 or not serves(offer, demand.device, demand.labels):
        return 0
    if slots <= offer.slots:
        return 1
    if demand.locality == "agent" or (demand.locality == "rack" and not offer.rack):
        return 0
    return -(-slots // offer.slots)


def slots_of(demand: CapacityDemand) -> int:
    """Slots that a gang takes on nodes: one that needs none still needs an agent to run on."""
    return max(1, demand.slots)
