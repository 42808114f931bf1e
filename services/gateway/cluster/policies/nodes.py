"""Pools whose nodes a provisioner starts, and these nodes, as the gateway tells of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from immutables import Map

from tenuto.kernel.folding import Envelope
from tenuto.schemas.config.environment import AllowedMount
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeFailure, NodeReleased, NodeRequested, NodeStarted
from tenuto.schemas.events.pool import CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import PoolMountsChanged, PoolProvisioned
from tenuto.schemas.provisioning import Provisioning

POOLS_MAX = 1_000
"""Pools with a provisioner: all are kept in memory."""
Phase = Literal["requested", "started", "released", "failed"]


@dataclass(frozen=True)
class DecidingEvent:
    """The event that last decided something about a node; its sentence is made when it is read."""

    about: str
    data: str
    """Data of the event, as JSON."""
    actor: str


@dataclass(frozen=True)
class NodeStatus:
    node_id: str
    pool: str
    node_type: str
    slots: int
    cost_per_hour: float
    requested_us: int
    said: DecidingEvent
    phase: Phase = "requested"
    provider_id: str = ""
    started_us: int | None = None
    message: str = ""
    """The provider's words on a failure."""


@dataclass(frozen=True)
class LastFailure:
    """The last one of a pool's nodes."""

    node_id: str
    node_type: str
    failure: NodeFailure
    message: str
    at_us: int
    retry_at_us: int | None
    said: DecidingEvent


@dataclass(frozen=True)
class PoolStatus:
    pool: str
    provisioning: Provisioning
    wanted: tuple[CapacityDemand, ...] = ()
    failure: LastFailure | None = None


@dataclass(frozen=True)
class Nodes:
    pools: Map[str, PoolStatus] = field(default_factory=Map)
    """Pools that have, or had, a provisioner, by name."""
    nodes: Map[str, NodeStatus] = field(default_factory=Map)
    """Nodes that have not ended, by id."""
    mounts: Map[str, tuple[AllowedMount, ...]] = field(default_factory=Map)
    """Mounts that a pool allows to containers, by its name; a pool without a setting is missing."""


SETTINGS = tuple(Provisioning.model_fields)


def fold(known: Nodes, data: EventData, envelope: Envelope) -> Nodes:
    match data:
        case PoolProvisioned():
            settings = Provisioning(**{name: getattr(data, name) for name in SETTINGS})
            before = known.pools.get(data.pool) or PoolStatus(data.pool, settings)
            wanted = before.wanted if settings.starts_nodes else ()
            pool = replace(before, provisioning=settings, failure=None, wanted=wanted)
            return replace(known, pools=known.pools.set(data.pool, pool))
        case PoolMountsChanged():
            mounts = known.mounts.delete(data.pool) if data.pool in known.mounts else known.mounts
            return replace(known, mounts=mounts if data.mounts is None else mounts.set(data.pool, data.mounts))
        case CapacityWanted() if data.pool in known.pools:
            pool = replace(known.pools[data.pool], wanted=data.demands)
            return replace(known, pools=known.pools.set(data.pool, pool))
        case NodeRequested():
            node = NodeStatus(
                data.node_id, data.pool, data.node_type, data.slots, data.cost_per_hour, envelope.time_us, _said(data, envelope)
            )
            return replace(known, nodes=known.nodes.set(data.node_id, node))
        case NodeEnded() if data.node_id in known.nodes:
            return replace(known, nodes=known.nodes.delete(data.node_id))
        case NodeStarted() | NodeFailed() | NodeReleased() if data.node_id in known.nodes:
            return _changed(known, known.nodes[data.node_id], data, envelope)
    return known


def _changed(known: Nodes, node: NodeStatus, data: NodeStarted | NodeFailed | NodeReleased, envelope: Envelope) -> Nodes:
    if isinstance(data, NodeStarted):
        node = replace(node, phase="started", provider_id=data.provider_id, started_us=envelope.time_us)
    elif isinstance(data, NodeReleased):
        node = replace(node, phase="released", said=_said(data, envelope))
    else:
        said = _said(data, envelope)
        node = replace(node, phase="failed", said=said, message=data.message)
        if (pool := known.pools.get(node.pool)) is not None:
            failure = LastFailure(
                node.node_id, node.node_type, data.failure, data.message, envelope.time_us, data.retry_at_us, said
            )
            known = replace(known, pools=known.pools.set(node.pool, replace(pool, failure=failure)))
    return replace(known, nodes=known.nodes.set(node.node_id, node))


def _said(data: EventData, envelope: Envelope) -> DecidingEvent:
    return DecidingEvent(data.TYPE, data.to_json().decode(), envelope.actor if isinstance(envelope, Event) else "")


OF_NODES: tuple[type[EventData], ...] = (
    PoolProvisioned,
    PoolMountsChanged,
    CapacityWanted,
    NodeRequested,
    NodeStarted,
    NodeFailed,
    NodeReleased,
    NodeEnded,
)
