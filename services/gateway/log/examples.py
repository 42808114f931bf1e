"""Examples of bodies and answers in the OpenAPI document, by route."""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.http.examples import EVENT_ID, HASH, TIME_US
from tenuto.services.gateway.log.adapters.upkeep import ParkedDetail, ParkedView, Rebuilding
from tenuto.services.gateway.log.views import AnchoredView, StatusView, VerifiedView

BODIES: dict[str, Any] = {
    "POST /log/verify": {"anchors": []},
}
_EVENT = {
    "id": EVENT_ID,
    "position": 121,
    "stream": "search/3",
    "version": 1,
    "type": "TrialRequested",
    "schema_version": 1,
    "time_us": TIME_US,
    "actor": "searcher/1",
    "correlation_id": "3",
    "causation_id": "59f98457-0b12-44ce-af54-5f78342e1d6d",
    "seen_position": 120,
    "trace": "",
    "sentence": "Trial 7 of at most 64, as 6 of at most 16 are active and none that waits is due; it trains to 1 epoch.",
    "data": {
        "experiment_id": 3,
        "trial_id": "3-7",
        "trial_number": 7,
        "hyperparameters": {"learning_rate": 0.0031},
        "seed": 4611686018427387904,
        "target_length": 1,
        "reason": {
            "rule": "asha.new_trial",
            "numbers": {"trials_max": 64, "active": 6, "concurrent_trials_max": 16, "unit": "epochs"},
        },
    },
}
ANSWERS: dict[str, Any] = {
    "GET /events": [_EVENT],
    "GET /events/search": [_EVENT],
    "GET /events/{position}/links": {"event": _EVENT, "cause": None, "followers": []},
}
_PARKED: dict[str, Any] = {
    "number": 1,
    "consumer": "tracker",
    "item_id": "tracker/node-1/spool/8",
    "kind": "unreadable",
    "reason": "it is no JSON",
    "size_bytes": 12,
    "parked_us": TIME_US,
    "retries": 0,
    "retry_asked": False,
}
VIEWS: dict[type[Any], Any] = {
    AnchoredView: {
        "anchor": {"position": 120, "hash": HASH, "time_us": TIME_US, "signature": HASH},
        "kept": ["/var/anchors"],
        "failed": {},
    },
    ParkedView: _PARKED,
    ParkedDetail: {**_PARKED, "body": "not a report"},
    Rebuilding: {"events": 120},
    StatusView: {
        "bus": {"ok": True, "message": ""},
        "version": "1.0.0",
        "head": 120,
        "consumers": [{"name": "searcher", "position": 120, "lag": 0}],
        "parked": 0,
        "backlog": [{"agent_id": "node-1", "lane": "tracker", "waiting": 3, "on_bus": 1}],
        "silent_trials": [{"trial_id": "3-7", "silent_seconds": 640.0}],
        "webhooks": [{"name": "done", "waiting": 1, "parked": 1, "answer": "HTTP 503"}],
        "automations": [{"name": "follow-up", "state": "silent", "parked": 1, "problem": ""}],
        "agents": 2,
        "slots": 16,
        "slots_used": 9,
        "context_bytes_max": 100_000_000,
    },
    VerifiedView: {
        "ok": True,
        "events": 120,
        "head": 120,
        "head_hash": HASH,
        "tampered": None,
        "anchors": 1,
        "unchecked": [],
    },
}
