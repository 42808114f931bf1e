"""Rights that the routes of automations need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import CHANGES_AUTOMATION, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/automations": PermissionRule("automation.view"),
    "GET /api/v1/automations/{automation}": PermissionRule("automation.view"),
    # A user's own automations. Every user may start one that does not exist.
    "PUT /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "PATCH /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "DELETE /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "POST /api/v1/automations/{automation}/redeliver": CHANGES_AUTOMATION,
}
