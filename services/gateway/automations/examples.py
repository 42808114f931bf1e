"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.automations.bodies import AutomationView, MovedView, RemovedView, RetriedView
from tenuto.services.gateway.http.examples import TIME_US, later

BODIES: dict[str, Any] = {
    "PATCH /automations/{automation}": {"run": 1, "rules": [{"rule": "announce", "position": 120}]},
    "PUT /automations/{automation}": {"rules": ["announce"], "source": "sse"},
    "POST /automations/{automation}/redeliver": {"numbers": [1, 2]},
}
VIEWS: dict[type[Any], Any] = {
    AutomationView: {
        "name": "follow-up",
        "owner": "ada",
        "run": 1,
        "source": "sse",
        "state": "running",
        "created_us": TIME_US,
        "seen_us": later(60),
        "rules": [{"rule": "announce", "position": 120, "behind": 2, "attempts": 0, "problem": "", "next_us": None, "parked": 1}],
        "parked": [
            {
                "number": 1,
                "rule": "announce",
                "position": 96,
                "event_type": "ExperimentCompleted",
                "reason": "RuntimeError: the wiki does not answer",
                "parked_us": later(30),
                "retries": 0,
                "retry_asked": False,
            }
        ],
    },
    MovedView: {"retries": [{"number": 1, "rule": "announce", "position": 96}]},
    RemovedView: {"name": "follow-up"},
    RetriedView: {"numbers": [1, 2]},
}
