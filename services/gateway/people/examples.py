"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

_HOLDING = {"kind": "user", "name": "ada", "role": "viewer"}
BODIES: dict[str, Any] = {
    "POST /grants": _HOLDING,
    "POST /login": {"name": "ada", "password": "correct horse battery staple"},
    "POST /login/link": {"code": "c" * 43},
    "POST /roles": {"name": "reader", "permissions": ["experiment.view"]},
    "PUT /roles/{role}": {"permissions": ["experiment.view", "cluster.view"]},
    "PUT /secrets/{name}": {"value": "of the registry"},
    "POST /sso/token": {"code": "d" * 43, "verifier": "e" * 43},
    "POST /users": {"name": "ada"},
    "PUT /users/{name}/password": {"password": "correct horse battery staple"},
    "POST /users/{name}/tokens": {"label": "nightly", "expires_days": 30},
    "POST /workspaces": {"name": "vision", "private": True},
    "PATCH /workspaces/{workspace}": {"slots_max": 32},
    "POST /workspaces/{workspace}/grants": _HOLDING,
    "POST /workspaces/{workspace}/projects": {"name": "lenet"},
    "PATCH /workspaces/{workspace}/projects/{project}": {"description": "Digits by convolutions."},
}
