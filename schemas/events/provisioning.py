"""Users' words on the nodes of a pool: where they come from, and what containers may mount there. Owner:
gateway. Stream: request/cluster."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.environment import MOUNTS_MAX, AllowedMount
from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest, PoolRequest
from tenuto.schemas.names import AGENT_NAME_PATTERN
from tenuto.schemas.provisioning import Provisioning


@event("PoolProvisioned")
class PoolProvisioned(Provisioning, PoolRequest):
    """Nodes of the pool are started and ended like this from now on. Provisioner static: not at all, and those that it had are
    given back."""


class PoolMounts(Model):
    """Common fields of PoolMountsChanged and the request for it."""

    mounts: tuple[AllowedMount, ...] | None = Field(default=None, max_length=MOUNTS_MAX)
    """Mounts that experiments may use on the pool's agents, within what each agent's operator allows. None: whatever that is."""


@event("PoolMountsChanged")
class PoolMountsChanged(PoolMounts, PoolRequest):
    """The pool's agents let containers mount these from now on; containers that run keep what they have."""


@event("NodeReleaseRequested")
class NodeReleaseRequested(ClusterRequest):
    """A user gives a node back."""

    node_id: str = Field(pattern=AGENT_NAME_PATTERN)
    drain: bool = True
    """True: what runs there ends first. False: it saves a checkpoint and goes on elsewhere."""
