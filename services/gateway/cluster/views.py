"""Answers about agents, nodes and join tokens."""

from __future__ import annotations

from typing import Literal

from tenuto.schemas.base import Model
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.node import NodeFailure
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.node_questions import CheckFinding, DemandStanding, NodeWords
from tenuto.schemas.provisioning import Provisioning

AgentState = Literal["joined", "leaving", "lost"]


class SlotView(Slot):
    enabled: bool
    allocation_id: str | None
    """Allocation that holds it now; null if it is free."""


class AgentView(Model):
    id: str
    pool: str
    host: str
    version: str
    state: AgentState
    reason: str
    slots: tuple[SlotView, ...]
    auxiliary: tuple[str, ...] = ()
    """Live allocations of trials without slots on it."""
    joined_us: int
    lost_us: int | None
    unlimited: str = ""
    """Reason why its runs lack some of the limits that its operator set; empty: they have them all, or none are set."""
    runtimes: tuple[str, ...] = ("process",)
    """Runtimes in which it can run workers: process, docker. A trial that names an image needs docker, or an agent in that
    image."""
    image: str = ""
    """Image in which it runs as a whole, for trials that name it and no others; empty: none."""
    notice: str = ""
    """Notice by the machine's provider that the machine will end, such as a preemption; empty: none was given."""


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
    """Reason of the last decision about it, as a sentence; empty for users who do not see all workspaces."""
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
    """Gangs that wait for nodes; empty for users who do not see all workspaces."""
    standings: tuple[DemandStanding, ...] = ()
    """Nodes that come for each of these gangs, and the reason why no more do; empty in lists, and while the launcher does not
    answer."""
    coming: tuple[NodeWords, ...] = ()
    """Provider's words on nodes whose agent has not joined; empty in lists, and while the launcher does not answer."""
    trouble: str = ""
    """Reason why the provider cannot be asked, or starts nothing, just now. Empty if it can, in lists, and while the launcher
    does not answer."""
    nodes: int
    """Number of nodes that have not ended."""
    nodes_coming: int
    """Number of these nodes whose agent has not joined."""
    cost_per_hour: float
    """Price of all these nodes for an hour, in the currency of the limits."""
    last_failure: NodeFailureView | None
    """Last failure of one of its nodes since its settings were made; null: none."""


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


class JoinTokenView(Model):
    id: str
    pool: str
    """Pool that its agents offer their slots to."""
    label: str
    created_us: int
    expires_us: int
    uses: int
    """Agents that joined by it."""
    uses_max: int


class NewJoinTokenView(JoinTokenView):
    url: str
    """Address of the gateway in the token."""
    token: str
    """The token itself, which is shown only in this answer: for `tenuto agent run --join`."""
