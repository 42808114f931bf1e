"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

_NODES: dict[str, Any] = {
    "provisioner": "ssh",
    "nodes_max": 4,
    "node_types": [{"name": "gpu", "slots": 8, "settings": {"hosts": "a.example b.example"}}],
}
BODIES: dict[str, Any] = {
    "POST /agents/join": {"agent_id": "node-1", "password": "a" * 43, "secret": "b" * 43, "token_id": "jt-" + "0" * 12},
    "POST /agents/standing": {"agent_id": "node-1", "credential_hash": "0" * 64},
    "POST /agents/{agent_id}/disable": {"slot_id": 0, "drain": True},
    "POST /agents/{agent_id}/enable": {"slot_id": 0},
    "POST /join-tokens": {"pool": "default", "uses_max": 8, "expires_seconds": 3600},
    "POST /nodes/{node_id}/release": {"drain": True},
    "PUT /pools/{pool}": {"policy": "priority", "preempt": True},
    "POST /pools/{pool}/check": _NODES,
    "PUT /pools/{pool}/mounts": {"mounts": [{"path": "/data"}]},
    "PUT /pools/{pool}/provisioning": _NODES,
    "PUT /shares/{owner}/{name}": {"weight": 2.0, "max_slots": 16},
}
