"""Rights that the routes of notices need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import CHANGES_WEBHOOK, PermissionRule

ROUTES: Mapping[str, PermissionRule] = {
    "GET /api/v1/webhooks": PermissionRule("webhook.view"),
    "GET /api/v1/webhooks/{name}": PermissionRule("webhook.view"),
    "GET /api/v1/webhooks/{name}/deliveries": PermissionRule("webhook.view"),
    "GET /api/v1/webhooks/{name}/explanation": PermissionRule("webhook.view"),
    "POST /api/v1/webhooks": PermissionRule("webhook.change"),
    # A user's own webhooks.
    "PATCH /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "DELETE /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/test": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/rotate": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/redeliver": CHANGES_WEBHOOK,
}
