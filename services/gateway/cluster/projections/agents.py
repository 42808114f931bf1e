"""Folds which agents offer which slots."""

from __future__ import annotations

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import agent, node, request
from tenuto.services.gateway.read_models.common import Connection, Handler, to_json


async def _joined(db: Connection, event: Event, data: agent.AgentJoined) -> None:
    await db.execute(
        """INSERT INTO agents (agent_id, pool, host, version, state, slots, joined_us, unlimited, runtimes, notice, image)
           VALUES ($1, $2, $3, $4, $7, $5, $6, $8, $9, $10, $11)
           ON CONFLICT (agent_id) DO UPDATE SET pool = excluded.pool, host = excluded.host, version = excluded.version,
               state = excluded.state, slots = excluded.slots, joined_us = excluded.joined_us, unlimited = excluded.unlimited,
               runtimes = excluded.runtimes, notice = excluded.notice, image = excluded.image, reason = '',
               lost_us = NULL""",
        data.agent_id,
        data.pool,
        data.host,
        data.version,
        to_json([item.model_dump() for item in data.slots]),
        event.time_us,
        "leaving" if data.leaving else "joined",
        data.unlimited,
        list(data.runtimes),
        data.notice,
        data.image,
    )


async def _lost(db: Connection, event: Event, data: agent.AgentLost) -> None:
    await db.execute(
        "UPDATE agents SET state = 'lost', reason = $2, lost_us = $3 WHERE agent_id = $1",
        data.agent_id,
        data.reason,
        event.time_us,
    )


async def _node_ended(db: Connection, _: Event, data: node.NodeEnded) -> None:
    """Names of nodes that come and go are never used again, and there is no end of them."""
    await db.execute("DELETE FROM closed_slots WHERE agent_id = $1", data.node_id)
    await db.execute("DELETE FROM agents WHERE agent_id = $1", data.node_id)


async def _closed(db: Connection, _: Event, data: request.SlotsClosed) -> None:
    await db.execute(
        """INSERT INTO closed_slots (agent_id, slot_id, drain) VALUES ($1, $2, $3)
           ON CONFLICT (agent_id, slot_id) DO UPDATE SET drain = excluded.drain""",
        data.agent_id,
        -1 if data.slot_id is None else data.slot_id,
        data.drain,
    )


async def _opened(db: Connection, _: Event, data: request.SlotsOpened) -> None:
    await db.execute(
        "DELETE FROM closed_slots WHERE agent_id = $1 AND ($2::int IS NULL OR slot_id = $2)", data.agent_id, data.slot_id
    )


HANDLERS: dict[str, Handler] = {
    "AgentJoined": _joined,
    "AgentLost": _lost,
    "NodeEnded": _node_ended,
    "SlotsClosed": _closed,
    "SlotsOpened": _opened,
}
