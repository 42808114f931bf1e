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


class RequestsView(Model):
    whose: str
    """A user, or an address where no user is known."""
    under_way: int


class DoorView(Model):
    """Connections and requests of the REST interface, in the process that answers. What it counts begins anew with it."""

    connections: int
    connections_max: int
    gave_way: int
    """Connections that waited for their client, and were closed to make room for others."""
    turned_away: int
    """Connections for which there was no room, as all had requests under way."""
    requests_max: int
    """Most requests that one user, or one address, may have under way."""
    requests: tuple[RequestsView, ...]
    """Those who have any under way, the most first, twenty at most: your own, and of others where you may do everything."""


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
