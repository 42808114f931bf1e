"""Rights that the routes of the door itself need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import OPEN, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    "GET /healthz": OPEN,
    "GET /api/v1/openapi.json": OPEN,
    "GET /api/v1/docs": OPEN,
}
