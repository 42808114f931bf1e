"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

BODIES: dict[str, Any] = {
    "POST /log/verify": {"anchors": []},
}
