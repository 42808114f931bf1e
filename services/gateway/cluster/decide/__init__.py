"""Decisions about the cluster: pools, shares, slots, nodes, and machines that join."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.services.gateway.cluster import commands
from tenuto.services.gateway.cluster.decide import joining, nodes, slots

DECISIONS: Mapping[type, Callable[[Any, Any], Sequence[EventData]]] = {
    commands.SetPoolPolicy: slots.set_pool_policy,
    commands.SetShare: slots.set_share,
    commands.CloseSlots: slots.close_slots,
    commands.OpenSlots: slots.open_slots,
    commands.ProvisionPool: nodes.provision,
    commands.SetPoolMounts: nodes.set_mounts,
    commands.ReleaseNode: nodes.release,
    commands.CreateNodeToken: nodes.create_token,
    commands.CreateJoinToken: joining.create_token,
    commands.RevokeJoinToken: joining.revoke_token,
    commands.Enroll: joining.enroll,
    commands.RevokeAgent: joining.revoke_agent,
}
"""Command -> what decides it."""
