"""State of the cluster: its pools, shares and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from tenuto.services.gateway.cluster.policies.joining import Joining
from tenuto.services.gateway.cluster.policies.nodes import Nodes
from tenuto.services.gateway.rights.state import PeopleState


class OwnerShare(NamedTuple):
    """Share of a workspace or a user, as it was set last."""

    weight: float
    max_slots: int | None


@dataclass(frozen=True)
class ClusterState(PeopleState):
    """State of the cluster that the gateway keeps: its pools, shares and machines."""

    shares: Map[str, OwnerShare] = field(default_factory=Map)
    """Shares that were set, by `workspace/<name>` and `user/<name>`."""
    half_lives: Map[str, float] = field(default_factory=Map)
    """Half-life of past use in hours, by pool; pools in which past use does not count are missing."""
    joining: Joining = field(default_factory=Joining)
    """Join tokens, and the agents that joined or were revoked."""
    nodes: Nodes = field(default_factory=Nodes)
    """Pools whose nodes a provisioner starts, and these nodes."""
