"""Leases of agents, renewed by heartbeats. In memory only: a launcher that starts gives every agent a new lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GAP_TICKS_MAX = 3
"""Looks that are missing in a row mean that this process, and not the agents, stood still (stopped, swapped out, host asleep)."""


@dataclass
class _Lease:
    ends_at: float
    spool_id: str = ""
    heard_at: float = float("-inf")


class Leases:
    """Leases of agents. All times are monotonic seconds. A lease runs only while agents could have been heard: the time without a
    bus, and the time in which the launcher itself stood still, count for no lease."""

    def __init__(self, lease_seconds: float, tick_seconds: float) -> None:
        self._lease_seconds, self._tick_seconds = lease_seconds, tick_seconds
        self._leases: dict[str, _Lease] = {}
        self._looked_at: float | None = None

    def hear(self, agent_id: str, spool_id: str, now: float, rival_seconds: float) -> bool:
        """An agent gave a sign of life. False: another one of that name, with another spool, did so in the last
        `rival_seconds`; this one is not counted."""
        known = self._leases.get(agent_id)
        if known is not None and known.spool_id not in ("", spool_id) and now - known.heard_at < rival_seconds:
            return False
        self._leases[agent_id] = _Lease(now + self._lease_seconds, spool_id, now)
        return True

    def look(self, agent_ids: Iterable[str], now: float, *, connected: bool) -> list[str]:
        """Called every `tick_seconds` with all agents that are joined; returns those whose lease has ended, sorted."""
        stood_still = self._looked_at is None or now - self._looked_at > GAP_TICKS_MAX * self._tick_seconds
        self._looked_at = now
        joined = sorted(agent_ids)
        # An agent not heard yet gets a whole lease, and those that are not joined any more are forgotten.
        self._leases = {agent_id: self._leases.get(agent_id) or _Lease(now + self._lease_seconds) for agent_id in joined}
        if stood_still or not connected:
            for lease in self._leases.values():
                lease.ends_at = max(lease.ends_at, now + self._lease_seconds)
            return []
        return [agent_id for agent_id in joined if self._leases[agent_id].ends_at <= now]
