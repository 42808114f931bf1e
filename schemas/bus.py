"""What services answer about the bus: whether it works, and what waits on it."""

from __future__ import annotations

from tenuto.schemas.base import Model
from tenuto.schemas.subjects import Lane


class BusState(Model):
    """Whether NATS can be reached and stores what it is sent."""

    ok: bool
    message: str = ""
    """What is wrong, and what follows from it."""


class LaneBacklog(Model):
    """Reports of one agent in one lane that are not in the record yet."""

    agent_id: str
    lane: Lane
    waiting: int
    """On the agent's disk, as it said last; those on the bus are among them."""
    on_bus: int
    """Messages in the bus."""


class Backlog(Model):
    lanes: tuple[LaneBacklog, ...]
    """Of each agent and lane where something waits, the longest first."""
