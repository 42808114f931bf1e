"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

_PART = {"config": "resources: {priority: 60}\nmax_restarts: 1\n"}
BODIES: dict[str, Any] = {
    "PUT /templates/{template}": _PART,
    "PUT /workspaces/{workspace}/defaults": _PART,
    "PUT /workspaces/{workspace}/templates/{template}": _PART,
}
