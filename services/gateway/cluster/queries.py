"""Reads agents, their slots, and who holds these."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Set
from typing import Any

from tenuto.services.gateway.cluster.views import AgentView, SlotView
from tenuto.services.gateway.read_models.decision_rows import SEEN, Hidden
from tenuto.services.gateway.read_models.places import OwnershipQueries
from tenuto.services.gateway.trials.queries.trials import SILENCE
from tenuto.services.gateway.trials.views import SilentTrialView


class ClusterQueries(OwnershipQueries):
    async def silent(self, seconds: float, limit: int, hidden: Hidden = frozenset()) -> list[SilentTrialView]:
        """Trials of whose workers nothing was heard for so long, the longest silent first."""
        rows = await self._rows(
            f"""SELECT * FROM (SELECT trial_id, {SILENCE} FROM trials WHERE allocation_id IS NOT NULL AND {SEEN.format(3)}) t
                WHERE silent_seconds > $1 ORDER BY silent_seconds DESC, trial_id LIMIT $2""",
            seconds,
            limit,
            list(hidden),
        )
        return [SilentTrialView(**row) for row in rows]

    async def agents(self) -> list[AgentView]:
        agents, closed, live = await asyncio.gather(
            self._rows("SELECT * FROM agents ORDER BY agent_id"),
            self._rows("SELECT agent_id, slot_id FROM closed_slots"),
            self._rows("SELECT allocation_id, slots FROM allocations WHERE released_us IS NULL"),
        )
        users = {
            (part["agent_id"], slot_id): row["allocation_id"]
            for row in live
            for part in json.loads(row["slots"])
            for slot_id in part["slot_ids"]
        }
        auxiliary: dict[str, list[str]] = {}
        for row in live:
            for part in json.loads(row["slots"]):
                if not part["slot_ids"]:
                    auxiliary.setdefault(part["agent_id"], []).append(row["allocation_id"])
        shut = {(row["agent_id"], row["slot_id"]) for row in closed}
        return [_agent(row, users, shut, auxiliary) for row in agents]


def _agent(
    row: dict[str, Any],
    users: Mapping[tuple[str, int], str],
    closed: Set[tuple[str, int]],
    auxiliary: Mapping[str, list[str]],
) -> AgentView:
    """`closed`: (agent, slot) that users took out of service; slot -1 is the whole agent. `auxiliary`: agent -> live allocations
    without slots on it."""
    agent_id = row.pop("agent_id")
    disabled = {slot_id for name, slot_id in closed if name == agent_id} | ({-1} if row["state"] == "leaving" else set())
    slots = tuple(
        SlotView(**slot, enabled=not disabled & {-1, slot["slot_id"]}, allocation_id=users.get((agent_id, slot["slot_id"])))
        for slot in json.loads(row.pop("slots"))
    )
    return AgentView(id=agent_id, slots=slots, auxiliary=tuple(sorted(auxiliary.get(agent_id, ()))), **row)
