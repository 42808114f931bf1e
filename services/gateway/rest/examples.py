"""Examples in the OpenAPI document: of every body, and of the answers that programs read first."""

from __future__ import annotations

from typing import Any

CONFIG = """\
name: digits
entrypoint: model_def:Trial
hyperparameters:
  learning_rate: {type: log, minval: -4, maxval: -1}
searcher: {name: asha, metric: accuracy, smaller_is_better: false, max_length: {epochs: 16}, max_trials: 64}
"""
_PART = {"config": "resources: {priority: 60}\nmax_restarts: 1\n"}
_HOLDING = {"kind": "user", "name": "ada", "role": "viewer"}
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
    "PATCH /automations/{automation}": {"run": 1, "rules": [{"rule": "announce", "position": 120}]},
    "PUT /automations/{automation}": {"rules": ["announce"], "source": "sse"},
    "POST /automations/{automation}/retry": {"numbers": [1, 2]},
    "PATCH /experiments/{experiment_id}": {"priority": 60, "max_slots": 8},
    "POST /experiments/{experiment_id}/continue": {"overrides": {"searcher": {"max_length": {"epochs": 40}}}},
    "PATCH /experiments/{experiment_id}/description": {"name": "lenet, wide", "labels": ["paper"]},
    "POST /experiments/{experiment_id}/fork": {"overrides": {"hyperparameters": {"batch_size": 128}}},
    "POST /experiments/{experiment_id}/operations": {
        "searcher": "my_search.py:MySearch",
        "cause_id": "01980000-0000-7000-8000-000000000000",
        "operations": [{"kind": "stop", "trial": 3}],
    },
    "PUT /experiments/{experiment_id}/project": {"project": "vision"},
    "POST /experiments/{experiment_id}/reproduce": {"trial_id": "3-7"},
    "POST /grants": _HOLDING,
    "POST /jobs/{experiment_id}/move": {"ahead_of": 7},
    "POST /join-tokens": {"pool": "default", "uses_max": 8, "expires_seconds": 3600},
    "POST /log/verify": {"anchors": []},
    "POST /login": {"name": "ada", "password": "correct horse battery staple"},
    "POST /login/link": {"code": "c" * 43},
    "POST /nodes/{node_id}/release": {"drain": True},
    "PUT /pools/{pool}": {"policy": "priority", "preempt": True},
    "POST /pools/{pool}/check": _NODES,
    "PUT /pools/{pool}/mounts": {"mounts": [{"path": "/data"}]},
    "PUT /pools/{pool}/provisioning": _NODES,
    "POST /preview": {"config": CONFIG, "overrides": ["searcher.max_trials"]},
    "POST /roles": {"name": "reader", "permissions": ["experiment.view"]},
    "PUT /roles/{role}": {"permissions": ["experiment.view", "cluster.view"]},
    "PUT /secrets/{name}": {"value": "of the registry"},
    "PUT /shares/{owner}/{name}": {"weight": 2.0, "max_slots": 16},
    "POST /sso/token": {"code": "d" * 43, "verifier": "e" * 43},
    "PUT /templates/{template}": _PART,
    "POST /users": {"name": "ada"},
    "PUT /users/{name}/password": {"password": "correct horse battery staple"},
    "POST /users/{name}/tokens": {"label": "nightly", "expires_days": 30},
    "POST /webhooks": {
        "name": "done",
        "target": {"kind": "http", "url": "https://hooks.example/tenuto"},
        "triggers": [{"on": "experiment", "states": ["completed", "failed"]}],
    },
    "PATCH /webhooks/{name}": {"paused": True},
    "POST /webhooks/{name}/redeliver": {"numbers": [4]},
    "POST /webhooks/{name}/rotate": {"keep_old_hours": 24},
    "POST /workspaces": {"name": "vision", "private": True},
    "PATCH /workspaces/{workspace}": {"slots_max": 32},
    "PUT /workspaces/{workspace}/defaults": _PART,
    "POST /workspaces/{workspace}/grants": _HOLDING,
    "POST /workspaces/{workspace}/projects": {"name": "lenet"},
    "PATCH /workspaces/{workspace}/projects/{project}": {"description": "Digits by convolutions."},
    "PUT /workspaces/{workspace}/rules": {"rules": [{"on": "trial", "states": ["failed"], "do": "pause"}]},
    "PUT /workspaces/{workspace}/templates/{template}": _PART,
}
"""By route, without the prefix."""
ANSWERS: dict[str, Any] = {
    "POST /experiments": {"id": 3, "position": 120, "rungs": "1, 4, 16 epochs; at most 64 trials"},
    "POST /experiments/{experiment_id}/fork": {"id": 4, "position": 160},
    "POST /experiments/{experiment_id}/continue": {"id": 5, "position": 200},
    "POST /experiments/{experiment_id}/reproduce": {"id": 6, "position": 240},
    "POST /experiments/{experiment_id}/pause": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/resume": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/cancel": {"id": 3, "changed": True},
    "POST /experiments/{experiment_id}/kill": {"id": 3, "changed": True},
}


def exemplify(document: dict[str, Any], prefix: str) -> None:
    """Writes the examples into the document. `prefix`: of its addresses."""
    for table, place in ((BODIES, _body), (ANSWERS, _answer)):
        for route, example in table.items():
            method, path = route.split(" ")
            place(document["paths"][prefix + path][method.lower()])["application/json"]["example"] = example
    upload = document["paths"][f"{prefix}/experiments"]["post"]["requestBody"]["content"]["multipart/form-data"]
    upload["schema"]["properties"]["config"]["example"] = CONFIG


def _body(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]


def _answer(operation: dict[str, Any]) -> Any:
    return next(answer for status, answer in operation["responses"].items() if status.startswith("2"))["content"]
