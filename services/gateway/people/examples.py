"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.http.bodies import Recorded, RightsChanged
from tenuto.services.gateway.http.examples import TIME_US, later
from tenuto.services.gateway.people.views import (
    GrantView,
    LinkView,
    NewTokenView,
    NewUserView,
    PermissionView,
    ProjectView,
    RoleView,
    SecretKeyView,
    SecretView,
    SignedInView,
    TokenView,
    UserView,
    WaysInView,
    WhoamiView,
    WorkspaceView,
)

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
_USER = {"name": "ada", "admin": False}
_TOKEN = {"id": "29a2a2e20b51", "label": "nightly", "created_us": TIME_US, "expires_us": later(30 * 86_400)}
_SHOWN_ONCE = "t" * 43
VIEWS: dict[type[Any], Any] = {
    GrantView: {**_HOLDING, "workspace": "vision"},
    LinkView: {"name": "ada", "code": "c" * 43, "expires_us": later(60)},
    NewTokenView: {**_TOKEN, "token": _SHOWN_ONCE},
    NewUserView: {**_USER, "token": _SHOWN_ONCE, "expires_us": later(90 * 86_400)},
    PermissionView: {
        "name": "experiment.view",
        "allows": "see experiments, with their trials, metrics, logs, checkpoints and events",
    },
    ProjectView: {"name": "lenet", "archived": False, "description": "Digits by convolutions.", "experiments": 3},
    Recorded: {"position": 121},
    RightsChanged: {"changed": True},
    RoleView: {"name": "reader", "permissions": ["experiment.view"], "own": True},
    SecretKeyView: {"secrets": 4, "unreadable": 0, "position": 121},
    SecretView: {"name": "registry", "updated_us": TIME_US},
    SignedInView: {**_USER, "id": "29a2a2e20b51", "expires_us": later(7 * 86_400), "token": _SHOWN_ONCE},
    TokenView: {**_TOKEN, "used_us": later(60)},
    UserView: _USER,
    WaysInView: {"provider": True},
    WhoamiView: {**_USER, "permissions": ["cluster.view", "workspace.create"], "token": _TOKEN},
    WorkspaceView: {
        "name": "vision",
        "private": True,
        "archived": False,
        "description": "",
        "priority_min": 1,
        "priority_max": 99,
        "slots_max": 32,
        "images": [],
        "storage_bytes_max": 0,
        "wall_hours_max": 0.0,
        "projects": 1,
        "experiments": 3,
        "permissions": ["experiment.create", "experiment.view"],
    },
}
