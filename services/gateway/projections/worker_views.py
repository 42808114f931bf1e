"""Workers in answers of the REST interface: their allocations, the present ones, and the time since their last report."""

from __future__ import annotations

from typing import Literal

from tenuto.schemas.base import Model
from tenuto.schemas.events.pool import AgentSlots

AllocationState = Literal["granted", "starting", "running", "preempting", "resizing", "exited", "released"]


class AllocationView(Model):
    id: str
    trial_id: str
    experiment_id: int
    pool: str
    state: AllocationState
    slots: tuple[AgentSlots, ...]
    reason: str
    outcome: str | None
    exit_code: int | None
    error: str | None
    granted_us: int
    started_us: int | None
    leaving_us: int | None = None
    """When its workers were first told to save and leave, or were killed. Null: they were not."""
    leaving_reason: str | None = None
    exited_us: int | None
    released_us: int | None


class WorkersView(Model):
    """Workers of an experiment that are there now."""

    trial_id: str
    allocation_id: str
    agent_ids: tuple[str, ...]
    said_us: int | None
    """When they last reported something: a report or a line of their log. Null: they have not begun."""
    silent_seconds: float | None
    """Since then."""


class SilentTrialView(Model):
    trial_id: str
    silent_seconds: float
    """Since its workers last reported something: a report or a line of their log."""


class StragglerView(Model):
    """A rank that holds up the others in every step."""

    allocation_id: str
    rank: int
    slots: int
    agent_id: str
    own_seconds: float
    """Time of a step on this worker, in seconds, without waiting for others."""
    usual_seconds: float
    """The same of the other ranks: their median."""
