"""Events about nodes that a provisioner starts and ends. Owner: launcher. Stream: node/<id>.

A node's agent has the node's id as its name, so AgentJoined and AgentLost tell when it is in service.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.events.registry import EventData, Reason, event

NodeFailure = Literal["capacity", "quota", "refused", "not_joined", "lost"]
"""capacity: the provider has none now. quota: the account's quota is used up. refused: the provider rejected the request, or the
node broke while it started. not_joined: the node ran, but no agent joined. lost: the node disappeared and was not released."""


class NodeEvent(EventData):
    OWNER: ClassVar[str] = "launcher"
    STREAM: ClassVar[str] = "node"

    node_id: str
    pool: str

    def stream_key(self) -> str:
        return self.node_id


@event("NodeRequested")
class NodeRequested(NodeEvent):
    """The provider is asked for a node. At most one machine ever has this id."""

    node_type: str
    group: str
    """Id of the first node of those that are asked for together; they are had all or none."""
    slots: int
    cost_per_hour: float = 0.0
    workspace: str = Field(default="", exclude_if=lambda value: not value)
    """Workspace of the gang that it is for, if the pool limits costs by workspace; else empty, and for nodes that are kept."""
    image: str = Field(default="", exclude_if=lambda value: not value)
    """Container image of the gang that it is for, which it pulls while it joins, or in which it runs as a whole if its type may
    (`node_images`). Empty: none."""
    reason: Reason


@event("NodeStarted")
class NodeStarted(NodeEvent):
    """The node runs at the provider; its agent has not joined yet."""

    provider_id: str = Field(max_length=300)
    """Name of the node at the provider: a job, a pod, an instance."""


@event("NodeFailed")
class NodeFailed(NodeEvent):
    """The node will not serve. Whatever is left of it at the provider is ended."""

    failure: NodeFailure
    message: str = Field(default="", max_length=500)
    """The provider's words."""
    retry_at_us: int | None = None
    """Nodes of this type are not asked for before this time. None: at once."""
    reason: Reason


@event("NodeReleased")
class NodeReleased(NodeEvent):
    """The node is given back: nothing new begins there, and when nothing runs on it, it is ended."""

    drain: bool = True
    """False: what runs there saves a checkpoint and goes on elsewhere, now."""
    retry_at_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Nodes of this type are not asked for before this time, because nothing ever ran on this one. None: at once."""
    reason: Reason


@event("NodeEnded")
class NodeEnded(NodeEvent):
    """The provider has nothing more of a node that was released or had failed."""
