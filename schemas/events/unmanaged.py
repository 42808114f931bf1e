"""Unmanaged runs: trained by a program that Tenuto did not start, and tracked here. Owner: gateway. Stream: request/<experiment>.

Their hyperparameters, metrics, tags and artifacts are data in tables: they decide nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import RequestEvent

UnmanagedState = Literal["queued", "running", "completed", "failed", "canceled"]
"""State of a run, as its program reports it."""
UnmanagedName = Annotated[str, Field(min_length=1, max_length=500)]
UNMANAGED_TRIALS_MAX = 1_000_000
"""Most trials of one experiment."""


@event("UnmanagedExperimentCreated")
class UnmanagedExperimentCreated(RequestEvent):
    """An experiment whose trials are runs of programs outside Tenuto. It has no configuration, and nothing of it is scheduled."""

    name: UnmanagedName
    user: str


@event("UnmanagedTrialStarted")
class UnmanagedTrialStarted(RequestEvent):
    trial_id: str
    trial_number: int = Field(ge=1, le=UNMANAGED_TRIALS_MAX)
    name: str = Field(max_length=500)
    """Name that the program or its user gave. Empty: none."""
    user: str
    """User whose token started it."""
    started_us: int
    """Time of the start by the program's own clock."""


@event("UnmanagedTrialChanged")
class UnmanagedTrialChanged(RequestEvent):
    """The state of a run changed, as its program, or its user, reports."""

    trial_id: str
    state: UnmanagedState
    ended_us: int | None
    """Time of the end by the program's own clock. None: it has not ended."""
    deleted: bool = False
    """True: it is left out of lists, and may be restored."""
