"""What became of the notices of a webhook: read from its stream of the log, which is the record of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from tenuto.schemas.events.notice import WebhookDelivered, WebhookFailed, WebhookTriggered
from tenuto.schemas.sentences import sentence
from tenuto.services.gateway.projections.rows import Fetching

EVENTS_MAX = 10_000
"""Read at once: a notice has two events as a rule."""
_EVENTS = f"""WITH newest AS (
    SELECT version FROM events WHERE stream = $1 AND type = '{WebhookTriggered.TYPE}' AND time_us >= $2
    ORDER BY version DESC LIMIT $3)
SELECT type, time_us, actor, payload FROM events
WHERE stream = $1 AND version >= (SELECT min(version) FROM newest) ORDER BY version LIMIT {EVENTS_MAX}"""


class DeliveryRecord(Fetching):
    async def of(self, webhook: str, since_us: int, limit: int) -> list[dict[str, Any]]:
        """The newest first. `since_us`: when the webhook was made, as an earlier one may have had the name."""
        return told(await self._rows(_EVENTS, f"notice/{webhook}", since_us, limit))


def told(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Of events in the order of the log."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        data = from_json(row["payload"])
        if row["type"] == WebhookTriggered.TYPE:
            found[data["number"]] = _triggered(row, data)
            continue
        for number in data["numbers"]:
            if number in found:
                found[number].update(_answered(row, data))
    return [found[number] for number in sorted(found, reverse=True)]


def _triggered(row: Any, data: dict[str, Any]) -> dict[str, Any]:
    names = ("number", "event_type", "experiment_id", "trial_id", "agent_id", "severity", "recovered")
    return {
        **{name: data[name] for name in names},
        "time_us": row["time_us"],
        "state": "waiting",
        "why": sentence(row["type"], data, row["actor"]),
        "attempts": 0,
        "answer": "",
        "done_us": None,
    }


def _answered(row: Any, data: dict[str, Any]) -> dict[str, Any]:
    if row["type"] == WebhookDelivered.TYPE:
        return {"state": "delivered", "attempts": data["attempts"], "answer": data["answer"], "done_us": row["time_us"]}
    if row["type"] == WebhookFailed.TYPE:
        why = sentence(row["type"], data, row["actor"])
        return {"state": "parked", "attempts": data["attempts"], "answer": why, "done_us": row["time_us"]}
    return {"state": "waiting", "attempts": data.get("attempts", 0), "answer": data.get("answer", ""), "done_us": None}
