"""Rights that the routes of templates need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import (
    CHANGES_TEMPLATES,
    CHANGES_WORKSPACE,
    READS,
    READS_WORKSPACE,
    PermissionRule,
)

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/workspaces/{workspace}/defaults": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/defaults": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/defaults": CHANGES_WORKSPACE,
    "GET /api/v1/templates": READS,
    "GET /api/v1/templates/{template}": READS,
    "PUT /api/v1/templates/{template}": PermissionRule("template.change"),
    "DELETE /api/v1/templates/{template}": PermissionRule("template.change"),
    "GET /api/v1/workspaces/{workspace}/templates/{template}": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/templates/{template}": CHANGES_TEMPLATES,
    "DELETE /api/v1/workspaces/{workspace}/templates/{template}": CHANGES_TEMPLATES,
}
