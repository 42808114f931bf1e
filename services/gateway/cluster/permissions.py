"""Rights that the routes of the cluster need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import OPEN, POOLS, SEES, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    # A machine that joins shows a join token, and an agent that it had credentials.
    "POST /api/v1/agents/join": OPEN,
    "POST /api/v1/agents/standing": OPEN,
    "GET /api/v1/jobs": SEES,
    "GET /api/v1/cluster": SEES,
    "GET /api/v1/pools/{pool}/what-if": SEES,
    "GET /api/v1/pools": SEES,
    "GET /api/v1/pools/{pool}/provisioning": SEES,
    "GET /api/v1/pools/{pool}/mounts": SEES,
    "GET /api/v1/nodes": SEES,
    "GET /api/v1/shares": SEES,
    "GET /api/v1/agents": SEES,
    "PUT /api/v1/pools/{pool}": POOLS,
    "PUT /api/v1/pools/{pool}/provisioning": POOLS,
    "PUT /api/v1/pools/{pool}/mounts": POOLS,
    "POST /api/v1/pools/{pool}/check": POOLS,
    "POST /api/v1/nodes/{node_id}/release": POOLS,
    "GET /api/v1/nodes/{node_id}/logs": POOLS,
    "PUT /api/v1/shares/{owner}/{name}": POOLS,
    "POST /api/v1/agents/{agent_id}/disable": POOLS,
    "POST /api/v1/agents/{agent_id}/enable": POOLS,
    "DELETE /api/v1/agents/{agent_id}": POOLS,
    "GET /api/v1/join-tokens": POOLS,
    "POST /api/v1/join-tokens": POOLS,
    "DELETE /api/v1/join-tokens/{token_id}": POOLS,
}
