"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.http.examples import EVENT_ID, TIME_US, later
from tenuto.services.gateway.notices.bodies import (
    DeliveryView,
    ExplanationView,
    NewWebhookView,
    RedeliveredView,
    SecretChangedView,
    TriedView,
    WebhookView,
)

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
_WEBHOOK: dict[str, Any] = {
    "name": "done",
    "owner": "ada",
    "kind": "http",
    "place": "https://hooks.example",
    "triggers": [{"on": "experiment", "states": ["completed", "failed"]}],
    "filters": {"experiments": [], "users": [], "workspaces": ["vision"], "labels": []},
    "group_seconds": 0.0,
    "recoveries": False,
    "paused": False,
    "created_us": TIME_US,
    "notices": 4,
    "waiting": 0,
    "parked": 1,
    "attempts": 0,
    "answer": "",
    "next_us": None,
}
_SECRET = f"whsec_{'A' * 43}="
VIEWS: dict[type[Any], Any] = {
    DeliveryView: {
        "number": 4,
        "time_us": later(60),
        "state": "parked",
        "event_type": "ExperimentFailed",
        "experiment_id": 3,
        "trial_id": None,
        "agent_id": None,
        "severity": "error",
        "recovered": False,
        "why": "Experiment 3 failed.",
        "attempts": 8,
        "answer": "HTTP 503",
        "done_us": later(3_600),
    },
    ExplanationView: {
        "event_id": EVENT_ID,
        "event_type": "AgentLost",
        "position": 118,
        "number": None,
        "sentences": ["Webhook done was paused when this event was recorded."],
    },
    NewWebhookView: {**_WEBHOOK, "secret": _SECRET},
    RedeliveredView: {"numbers": [4]},
    SecretChangedView: {"secret": _SECRET, "old_until_us": later(86_400)},
    TriedView: {"number": 5},
    WebhookView: _WEBHOOK,
}
