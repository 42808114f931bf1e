"""Outcomes of a webhook's notices, read from its stream of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from tenuto.schemas.events.notice import WebhookDelivered, WebhookFailed, WebhookTriggered
from tenuto.schemas.sentences import sentence
from tenuto.services.gateway.read_models.rows import Fetching

EVENTS_MAX = 10_000
"""Most events that are read at once; a notice usually has two."""
_PAYLOAD = "convert_from(payload, 'UTF8')::json"
_EVENTS = f"""WITH page AS (
    SELECT version, ({_PAYLOAD} ->> 'number')::bigint AS number FROM events
    WHERE stream = $1 AND type = '{WebhookTriggered.TYPE}' AND time_us >= $2 AND ($4::bigint IS NULL OR version < $4)
    ORDER BY version DESC LIMIT $3
), ends AS MATERIALIZED (
    SELECT min(version) AS oldest, max(version) AS newest, min(number) AS first, max(number) AS last FROM page)
SELECT version, type, time_us, actor, payload FROM (
    SELECT * FROM events WHERE stream = $1 AND version >= (SELECT oldest FROM ends) ORDER BY version LIMIT {EVENTS_MAX}
) later, ends
WHERE CASE WHEN type = '{WebhookTriggered.TYPE}' THEN version <= newest
    ELSE EXISTS (SELECT FROM json_array_elements_text({_PAYLOAD} -> 'numbers') n WHERE n::bigint BETWEEN first AND last) END
ORDER BY version"""


class DeliveryRecord(Fetching):
    async def of(
        self, webhook: str, since_us: int, limit: int, behind: int | None = None
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Deliveries, the newest first, and the version before which the next page begins; None if there is none. `since_us`:
        creation time of the webhook, as an earlier one may have had the name."""
        rows = await self._rows(_EVENTS, f"notice/{webhook}", since_us, limit, behind)
        triggered = [row["version"] for row in rows if row["type"] == WebhookTriggered.TYPE]
        return told(rows), triggered[0] if len(triggered) == limit else None


def told(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Deliveries, the newest first, by events in the order of the log."""
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
