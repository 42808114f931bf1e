"""Folds what is recorded of pools, shares, machines and their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.kernel.folding import Envelope, Fold, WithEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeEnded
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged
from tenuto.services.gateway.cluster.policies import joining, nodes
from tenuto.services.gateway.cluster.state import ClusterState, OwnerShare


def share_changed(state: ClusterState, data: ShareChanged) -> ClusterState:
    share = OwnerShare(data.weight, data.max_slots)
    return replace(state, shares=state.shares.set(f"{data.owner}/{data.name}", share))


def policy_changed(state: ClusterState, data: PoolPolicyChanged) -> ClusterState:
    hours = data.usage_half_life_hours
    if hours is not None:
        return replace(state, half_lives=state.half_lives.set(data.pool, hours))
    return replace(state, half_lives=state.half_lives.delete(data.pool)) if data.pool in state.half_lives else state


def joining_changed(state: ClusterState, data: EventData, envelope: Envelope) -> ClusterState:
    return replace(state, joining=joining.fold(state.joining, data, envelope.time_us))


def nodes_changed(state: ClusterState, data: EventData, envelope: Envelope) -> ClusterState:
    """An ended node's agent and its tokens are of no more use."""
    state = replace(state, nodes=nodes.fold(state.nodes, data, envelope))
    return joining_changed(state, data, envelope) if isinstance(data, NodeEnded) else state


FOLDS: Mapping[type[EventData], Fold[Any]] = {
    **dict.fromkeys(joining.OF_JOINING, WithEnvelope(joining_changed)),
    **dict.fromkeys(nodes.OF_NODES, WithEnvelope(nodes_changed)),
    ShareChanged: share_changed,
    PoolPolicyChanged: policy_changed,
}
