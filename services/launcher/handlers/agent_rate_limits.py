"""Pace at which one agent may change what is on record of it."""

from __future__ import annotations

CHANGES_MAX = 20
"""Most changes in a row without a pause: what an agent offers, that it ends, workers that are gone. More than a start and an end
need."""
KNOWN_MAX = 1_000
"""Agents beyond which those that have paused long enough are forgotten."""


class Paces:
    """Each change takes the time of one heartbeat; an agent is ahead of that by CHANGES_MAX at most. So one in the wrong hands,
    which offers something else with each of a thousand heartbeats a second, adds to the record no faster than it may."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._paid: dict[str, float] = {}
        """Time until which the changes of each agent have used up its time."""

    def take(self, agent_id: str, now: float) -> bool:
        """False: this change has to wait for a later heartbeat."""
        paid = max(self._paid.get(agent_id, now), now) + self._seconds
        if paid - now > CHANGES_MAX * self._seconds:
            return False
        if len(self._paid) >= KNOWN_MAX:
            self._paid = {name: until for name, until in self._paid.items() if until > now}
        self._paid[agent_id] = paid
        return True
