"""What could not be handled is parked with its reason, visible, and nothing behind it waits."""

from __future__ import annotations

from typing import Any

_PARK = """
INSERT INTO parked (consumer, item_id, kind, body, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (consumer, item_id) DO NOTHING"""

REASON_CHARACTERS_MAX = 4_000
"""A reason is for people; a traceback of a deep recursion is not."""


async def park(database: Any, consumer: str, item_id: str, kind: str, body: bytes, reason: str) -> None:
    """`database` is an asyncpg pool or connection. Parked once, however often it comes."""
    await database.execute(_PARK, consumer, item_id, kind, body, reason[:REASON_CHARACTERS_MAX].replace("\0", "\ufffd"))
