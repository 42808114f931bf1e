"""When each agent was last heard of. Counted only while the bus is connected: an agent is not lost because we are deaf."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.kernel.clock import Clock


class Leases:
    def __init__(self, clock: Clock, lease_seconds_max: float) -> None:
        self._clock, self._lease_seconds_max = clock, lease_seconds_max
        self._heard: dict[str, float] = {}
        self._deaf = True

    def heard(self, agent_id: str) -> None:
        self._heard[agent_id] = self._clock.monotonic()

    def expired(self, joined: Iterable[str], connected: bool) -> list[str]:
        """Agents of `joined` whose lease ran out, sorted. An agent that is new here, or every agent after the bus came back,
        begins a whole lease."""
        now = self._clock.monotonic()
        if not connected:
            self._deaf = True
            return []
        agents = sorted(joined)
        if self._deaf:
            self._deaf = False
            self._heard = dict.fromkeys(agents, now)
        self._heard = {agent_id: self._heard.get(agent_id, now) for agent_id in agents}
        return [agent_id for agent_id in agents if now - self._heard[agent_id] > self._lease_seconds_max]
