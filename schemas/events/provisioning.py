"""Users' words on where the nodes of a pool come from. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest, PoolRequest
from tenuto.schemas.joining import AGENT_NAME_PATTERN
from tenuto.schemas.provisioning import Provisioning


@event("PoolProvisioned")
class PoolProvisioned(Provisioning, PoolRequest):
    """Nodes of the pool are started and ended like this from now on. Provisioner static: not at all, and those that it had are
    given back."""


@event("NodeReleaseRequested")
class NodeReleaseRequested(ClusterRequest):
    """A user gives a node back."""

    node_id: str = Field(pattern=AGENT_NAME_PATTERN)
    drain: bool = True
    """True: what runs there ends first. False: it saves a checkpoint and goes on elsewhere."""
