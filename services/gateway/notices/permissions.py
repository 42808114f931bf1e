"""Rights that the routes of notices need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import CHANGES_WEBHOOK, Rule

ROUTES: Mapping[str, Rule] = {
    "GET /api/v1/webhooks": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}/deliveries": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}/explanation": Rule("webhook.view"),
    "POST /api/v1/webhooks": Rule("webhook.change"),
    # A user's own webhooks.
    "PATCH /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "DELETE /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/test": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/rotate": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/redeliver": CHANGES_WEBHOOK,
}
