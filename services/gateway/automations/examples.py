"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, Any] = {
    "PATCH /automations/{automation}": {"run": 1, "rules": [{"rule": "announce", "position": 120}]},
    "PUT /automations/{automation}": {"rules": ["announce"], "source": "sse"},
    "POST /automations/{automation}/retry": {"numbers": [1, 2]},
}
