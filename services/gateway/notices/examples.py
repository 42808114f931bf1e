"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, Any] = {
    "POST /webhooks": {
        "name": "done",
        "target": {"kind": "http", "url": "https://hooks.example/tenuto"},
        "triggers": [{"on": "experiment", "states": ["completed", "failed"]}],
    },
    "PATCH /webhooks/{name}": {"paused": True},
    "POST /webhooks/{name}/redeliver": {"numbers": [4]},
    "POST /webhooks/{name}/rotate": {"keep_old_hours": 24},
}
