"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.schemas.events.provisioning import PoolMounts
from tenuto.schemas.joining import JoinedView, StandingView
from tenuto.schemas.queue import PastAnswer, QueueAnswer, ShareRow
from tenuto.schemas.what_if import WhatIfAnswer
from tenuto.services.gateway.cluster.views import (
    AgentView,
    CheckView,
    JoinTokenView,
    NewJoinTokenView,
    NodeLogsView,
    NodeView,
    PoolView,
)
from tenuto.services.gateway.http.examples import TIME_US, later

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
_JOIN_TOKEN: dict[str, Any] = {
    "id": f"jt-{'0' * 12}",
    "pool": "default",
    "label": "",
    "created_us": TIME_US,
    "expires_us": later(3_600),
    "uses": 0,
    "uses_max": 8,
}
_DEMAND = {"slots": 8, "count": 1, "experiment_id": 3}
_SHARE: dict[str, Any] = {"owner": "workspace", "name": "vision", "weight": 2.0, "max_slots": 16, "slots": 8}
_POOL: dict[str, Any] = {
    "pool": "default",
    "policy": "priority",
    "usage_half_life_hours": None,
    "capacity": 8,
    "free": 1,
    "leaving": 0,
    "agents": 1,
    "waiting": 1,
}
_WAITS: dict[str, Any] = {
    "position": 1,
    "experiment_id": 3,
    "pool": "default",
    "priority": 60,
    "place": 1.0,
    "weight": 1.0,
    "workspace": "vision",
    "user": "ada",
    "max_slots": None,
    "slots_per_trial": 2,
    "slots": 0,
    "share": None,
    "trials_waiting": 1,
    "rule": "held",
    "text": "needs 2 slots; 1 of 8 is free, and no running trial has to give way to it",
    "expected_us": None,
    "numbers": {"slots_wanted": 2, "slots_free": 1},
}
_FIGURES: dict[str, Any] = {
    "trials": 2,
    "wait_mean_seconds": 30.0,
    "wait_p95_seconds": 60.0,
    "wait_longest_seconds": 60.0,
    "used": 0.84,
    "slot_hours": 0.5,
    "preemptions": 0,
    "resizes": 0,
    "took_seconds": 1_200.0,
    "users": [{"user": "ada", "trials": 2, "wait_mean_seconds": 30.0, "slot_hours": 0.5}],
}
VIEWS: dict[type[Any], Any] = {
    AgentView: {
        "id": "node-1",
        "pool": "default",
        "host": "a.example",
        "version": "1.0.0",
        "state": "joined",
        "reason": "",
        "slots": [{"slot_id": 0, "kind": "cuda", "device": "NVIDIA H100", "enabled": True, "allocation_id": "3-7-1"}],
        "joined_us": TIME_US,
        "lost_us": None,
        "runtimes": ["process", "docker"],
    },
    CheckView: {
        "ready": False,
        "findings": [{"what": "host b.example", "problem": "b.example cannot be reached: open port 22."}],
    },
    JoinTokenView: _JOIN_TOKEN,
    JoinedView: {"agent_id": "node-1", "pool": "default", "nats_url": "nats://a.example:4222"},
    NewJoinTokenView: {**_JOIN_TOKEN, "url": "https://tenuto.example", "token": f"tenuto-join-{'e' * 43}"},
    NodeLogsView: {"logs": "tenuto agent: joined pool default\n"},
    NodeView: {
        "id": "default-gpu-1",
        "pool": "default",
        "node_type": "gpu",
        "slots": 8,
        "cost_per_hour": 0.0,
        "phase": "joined",
        "provider_id": "a.example",
        "requested_us": TIME_US,
        "started_us": later(40),
        "reason": "A gang of experiment 3 lacks 8 slots; this node is for it. The pool has 1 node of at most 4.",
        "message": "",
    },
    PastAnswer: {
        "queue": {"pools": [{**_POOL, "rows": []}], "position": 120, "time_us": TIME_US},
        "agents": [
            {
                "id": "node-1",
                "pool": "default",
                "kind": "cuda",
                "lost": False,
                "slots": [{"slot_id": 0, "enabled": True, "allocation_id": "3-7-1"}],
            }
        ],
    },
    PoolMounts: {"mounts": [{"path": "/data"}]},
    PoolView: {
        "pool": "default",
        "provisioning": _NODES,
        "wanted": [_DEMAND],
        "standings": [{"demand": _DEMAND, "gangs_coming": 1}],
        "coming": [{"node_id": "default-gpu-2", "words": "its agent is being installed"}],
        "nodes": 2,
        "nodes_coming": 1,
        "cost_per_hour": 0.0,
        "last_failure": None,
    },
    QueueAnswer: {"pools": [{**_POOL, "rows": [_WAITS]}], "shares": [_SHARE]},
    ShareRow: _SHARE,
    StandingView: {"joined": True},
    WhatIfAnswer: {
        "pool": "default",
        "policy": "fair_share",
        "position": 120,
        "start_us": TIME_US,
        "agents": ["node-1"],
        "courses": [
            {"name": "changed", "figures": _FIGURES, "end_us": later(1_200), "segments": [[0, 0, TIME_US, later(600), 3]]}
        ],
    },
}
