"""Answers of services about the bus: whether it works, and how many reports wait on it."""

from __future__ import annotations

from tenuto.schemas.base import Model
from tenuto.schemas.subjects import Lane


class BusState(Model):
    """State of NATS: reachable and storing messages, or not."""

    ok: bool
    message: str = ""
    """Fault of the bus and its consequences. Empty: there is none."""


class LaneBacklog(Model):
    """Reports of one agent in one lane that are not in the record yet."""

    agent_id: str
    lane: Lane
    waiting: int
    """Uncommitted reports on the agent's disk, by its latest heartbeat; those already on the bus are included."""
    on_bus: int
    """Messages of this lane in the bus."""


class Backlog(Model):
    lanes: tuple[LaneBacklog, ...]
    """One row for each agent and lane with waiting reports, the longest first."""
