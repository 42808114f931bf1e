"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.http.examples import HASH
from tenuto.services.gateway.templates.bodies import TemplateDetail, TemplateView

_PART = {"config": "resources: {priority: 60}\nmax_restarts: 1\n"}
BODIES: dict[str, Any] = {
    "PUT /templates/{template}": _PART,
    "PUT /workspaces/{workspace}/defaults": _PART,
    "PUT /workspaces/{workspace}/templates/{template}": _PART,
}
_VIEW = {"name": "urgent", "workspace": "vision", "version": 2, "digest": HASH, "size_bytes": 44}
VIEWS: dict[type[Any], Any] = {
    TemplateView: _VIEW,
    TemplateDetail: {**_VIEW, "config": {"resources": {"priority": 60}, "max_restarts": 1}},
}
