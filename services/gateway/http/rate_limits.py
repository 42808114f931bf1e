"""Limit on a user's requests: a rate, and a burst that may go ahead of it. Pure; the caller gives the time."""

from __future__ import annotations

BURST_SECONDS = 10.0
"""Seconds' worth of requests that may come at once: a page that asks for fifty trials, a script that submits a sweep."""
STANDINGS_PER_SECOND_MAX = 2.0
"""Most questions per second of one agent, from one address, about its membership in the cluster: it asks once a second while the
bus refuses it."""
STANDINGS_OF_ADDRESS_PER_SECOND_MAX = 20.0
"""Same limit for all agents of one address: 200 may ask at once when the bus comes back, and strangers who guess get no
further."""
SENDERS_MAX = 10_000
"""Most senders remembered at once; one that sent nothing lately is the same as a new one, and is forgotten."""


class Pace:
    """Each sender has a moment up to which its requests are paid for; each request moves it on by 1/rate."""

    def __init__(self, per_second: float, burst_seconds: float = BURST_SECONDS, senders_max: int = SENDERS_MAX) -> None:
        """`per_second`: 0: no limit."""
        self._cost_seconds = 1.0 / per_second if per_second > 0 else 0.0
        # One request is always possible, whatever the rate.
        self._ahead_seconds = max(burst_seconds, self._cost_seconds)
        self._senders_max = senders_max
        self._paid_until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._paid_until)

    def take(self, sender: str, now: float) -> float:
        """Seconds until the request may go on, which then does not count; 0 if it may go on now. `now`: seconds of a clock that
        never goes back."""
        if self._cost_seconds == 0.0:
            return 0.0
        until = max(self._paid_until.get(sender, now), now) + self._cost_seconds
        wait = until - now - self._ahead_seconds
        if wait > 1e-9:  # beyond what the sums of many small numbers are wrong by
            return wait
        if sender not in self._paid_until and len(self._paid_until) >= self._senders_max:
            self._forget(now)
        self._paid_until[sender] = until
        return 0.0

    def _forget(self, now: float) -> None:
        """Forgets senders with nothing outstanding, and of too many others those with the least."""
        busy = sorted((until, sender) for sender, until in self._paid_until.items() if until > now)
        self._paid_until = {sender: until for until, sender in busy[-(self._senders_max // 2) :]}


class StandingPace:
    """Limit on questions that need no token. An agent has a count for each address, so that others cannot use up the real
    agent's."""

    def __init__(self) -> None:
        self._agents, self._addresses = Pace(STANDINGS_PER_SECOND_MAX), Pace(STANDINGS_OF_ADDRESS_PER_SECOND_MAX)

    def take(self, address: str, agent_id: str, now: float) -> float:
        """Same as `Pace.take`, by address and agent."""
        return self._addresses.take(address, now) or self._agents.take(f"{address} {agent_id}", now)
