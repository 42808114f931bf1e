"""Bodies of requests in the REST interface, and immediate answers to changes."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from tenuto.schemas.anchors import ANCHORS_SENT_MAX, Anchor
from tenuto.schemas.base import Model
from tenuto.schemas.config.resources import NAME_PATTERN, SLOTS_MAX
from tenuto.schemas.events.request import NewUser, TokenLabel, TrialLimits
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.services.gateway.projections.worker_views import WorkersView

TOKEN_DAYS_MAX = 3_650
"""Ten years."""


class Submitted(Model):
    id: int
    position: int
    """Log position of its ExperimentSubmitted: follow the events from here."""


class Done(Model):
    """A request was recorded, or there was nothing to change."""

    id: int
    changed: bool
    waits_for: tuple[WorkersView, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Workers that are still there, the longest silent first, a hundred at most. Absent: nothing is waited for."""
    killed_at_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time at which agents kill workers that have not left; absent without such a limit."""


class DeletionAsked(Model):
    id: int
    changed: bool
    """False: it was to be deleted no later than that already."""
    due_us: int
    """When it is deleted; `undelete` keeps it until then."""


class OperationsBody(Model):
    searcher: str = Field(min_length=1, max_length=256)
    """Class that decided, such as `my_search.py:MySearch`."""
    cause_id: UUID
    """The event that it decided on."""
    operations: tuple[Operation, ...] = Field(min_length=1, max_length=OPERATIONS_MAX)


class OperationsRecorded(Model):
    position: int
    searcher: str
    operations: tuple[Operation, ...]
    """As they are on record: those of the first request about this event, whatever was asked for later."""


class ChangeBody(TrialLimits):
    """Changes; a field that is left out stays. `max_slots: null` removes the limit."""

    priority: int | None = Field(default=None, ge=1, le=99)
    weight: float | None = Field(default=None, gt=0, le=1e6)
    max_slots: int | None = Field(default=None, ge=1, le=SLOTS_MAX)
    pool: str | None = Field(default=None, pattern=NAME_PATTERN)


class VerifyBody(Model):
    anchors: tuple[Anchor, ...] = Field(default=(), max_length=ANCHORS_SENT_MAX)
    """Notes of the log's end that were kept elsewhere, to be compared as well."""


class MoveBody(Model):
    """Beside which experiment; it takes over that one's priority. Exactly one of the two."""

    ahead_of: int | None = Field(default=None, ge=1)
    behind: int | None = Field(default=None, ge=1)


class NewUserBody(NewUser):
    expires_days: float | None = Field(default=None, ge=0, le=TOKEN_DAYS_MAX)
    """Life of its token. null: as the cluster's settings say. 0: it does not expire."""


class NewTokenBody(Model):
    label: TokenLabel = ""
    """Purpose of the token."""
    expires_days: float | None = Field(default=None, ge=0, le=TOKEN_DAYS_MAX)
    """null: as the cluster's settings say. 0: it does not expire, which only admins may ask for."""


class SecretBody(Model):
    value: str = Field(min_length=8, max_length=65_536)
    """At least 8 characters: a shorter one could not be hidden in logs without hiding words too."""


class Recorded(Model):
    position: int
    """Of the event in the log."""
