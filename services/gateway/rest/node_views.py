"""Pools whose nodes a provisioner starts, and these nodes, in bodies and answers of the REST interface."""

from __future__ import annotations

from tenuto.schemas.base import Model
from tenuto.schemas.events.node import NodeFailure
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.node_questions import CheckFinding, DemandStanding, NodeWords
from tenuto.schemas.provisioning import Provisioning


class NodeView(Model):
    id: str
    """Name of the node and of its agent."""
    pool: str
    node_type: str
    slots: int
    cost_per_hour: float
    phase: str
    """requested: the provider is asked for it. started: it runs there, and its agent has not joined. joined: its agent has.
    released: it is given back. failed: it will not serve."""
    provider_id: str
    """Name at the provider: a job, a pod, a host. Empty: it has not been seen running."""
    requested_us: int
    started_us: int | None
    reason: str
    """Reason of the last decision about it, as a sentence; empty for whoever does not see all workspaces."""
    message: str
    """The provider's words on its failure."""


class NodeFailureView(Model):
    node_id: str
    node_type: str
    failure: NodeFailure
    message: str
    """The provider's words."""
    reason: str
    at_us: int
    retry_at_us: int | None
    """Nodes of this type are not asked for before."""


class PoolView(Model):
    pool: str
    provisioning: Provisioning
    wanted: tuple[CapacityDemand, ...]
    """Gangs that wait for nodes; empty for whoever does not see all workspaces."""
    standings: tuple[DemandStanding, ...] = ()
    """What comes for each of these, and why nothing more does; empty in lists, and while the launcher does not answer."""
    coming: tuple[NodeWords, ...] = ()
    """What the provider says of nodes whose agent has not joined; empty in lists, and while the launcher does not answer."""
    trouble: str = ""
    """Why the provider cannot be asked, or starts nothing, just now. Empty if it can, in lists, and while the launcher does not
    answer."""
    nodes: int
    """Nodes that have not ended."""
    nodes_coming: int
    """Of these, those whose agent has not joined."""
    cost_per_hour: float
    """Of all of them."""
    last_failure: NodeFailureView | None
    """Of its nodes, since its settings were made."""


class CheckView(Model):
    ready: bool
    """True: nothing is missing."""
    findings: tuple[CheckFinding, ...]


class ReleaseBody(Model):
    drain: bool = True
    """True: what runs there ends first. False: it saves a checkpoint and goes on elsewhere."""


class NodeLogsView(Model):
    logs: str
    """Last lines of what the node's agent, or its boot, has printed."""
