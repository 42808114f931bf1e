"""Bodies of requests in the REST interface, and immediate answers to changes."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from tenuto.schemas.anchors import ANCHORS_SENT_MAX, Anchor
from tenuto.schemas.base import Model
from tenuto.schemas.config.resources import SLOTS_MAX, WALL_HOURS_MAX
from tenuto.schemas.events.request import USER_NAME_PATTERN, NewUser, TokenLabel, TrialLimits
from tenuto.schemas.joining import USES_MAX
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.services.gateway.projections.worker_views import WorkersView

TOKEN_DAYS_MAX = 3_650
"""Ten years."""
PASSWORD_CHARACTERS_MAX = 1_024
"""Longer than any that is taken: what is too long is answered with a sentence."""


PermissionName = Annotated[str, Field(min_length=1, max_length=63)]
PERMISSIONS_MAX = 100


class Submitted(Model):
    id: int
    position: int
    """Log position of its ExperimentSubmitted: follow the events from here."""
    rungs: str = Field(default="", exclude_if=lambda value: not value)
    """Lengths at which the search compares trials, and most trials, in words. Absent: it compares at no rungs."""
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Sentences on what is allowed, and may not be what was meant. Absent: there are none."""


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
    """Changes; a field that is left out stays. `max_slots: null` and `max_wall_hours: null` remove the limit."""

    priority: int | None = Field(default=None, ge=1, le=99)
    weight: float | None = Field(default=None, gt=0, le=1e6)
    max_slots: int | None = Field(default=None, ge=1, le=SLOTS_MAX)
    max_wall_hours: float | None = Field(default=None, gt=0, le=WALL_HOURS_MAX)
    """Longest time in hours that it runs, as `resources.max_wall_hours`; more than it has run."""
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
    permissions: tuple[PermissionName, ...] | None = Field(default=None, min_length=1, max_length=PERMISSIONS_MAX)
    """What it is limited to, by names of `GET /permissions`. null: no limit but that of the token that makes it."""
    role: str | None = Field(default=None, min_length=1, max_length=63)
    """Role whose present permissions it is limited to, in place of `permissions`."""
    workspace: str | None = Field(default=None, pattern=NAME_PATTERN)
    """Workspace that it is limited to. null: no limit but that of the token that makes it."""


JOIN_TOKEN_SECONDS_MAX = 30 * 24 * 3_600
"""Thirty days: a token that lies around longer is better made anew."""


class NewJoinTokenBody(Model):
    pool: str = Field(pattern=NAME_PATTERN)
    """Pool that its agents offer their slots to."""
    expires_seconds: int = Field(default=3_600, ge=1, le=JOIN_TOKEN_SECONDS_MAX)
    """Time in which agents may join by it; those that did stay."""
    uses_max: int = Field(default=1, ge=1, le=USES_MAX)
    """Most agents that join by it."""
    label: TokenLabel = ""
    """Purpose of the token."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$", max_length=2_048)
    """Address of the gateway as machines that join reach it. null: TENUTO_PUBLIC_URL, or else the one that this request was sent
    to."""


class LoginBody(Model):
    name: str = Field(pattern=USER_NAME_PATTERN)
    password: str = Field(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    new_password: str | None = Field(default=None, min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    """The user's password from now on; all sessions of before end. Needed where an admin has set the present one."""
    label: TokenLabel = ""
    """Name of the machine or program, for the list of the user's sessions."""
    cookie: bool = False
    """True: the session is kept in a cookie that no script reads, and the answer has no token. For browsers."""


class LinkBody(Model):
    code: str = Field(min_length=1, max_length=256)
    """Of the link, made within the last minute and not used yet."""


class SsoTokenBody(Model):
    code: str = Field(min_length=1, max_length=256)
    """As the user's browser was shown it."""
    verifier: str = Field(min_length=43, max_length=128)
    """Of which the sign-in was begun with the S256 challenge."""
    label: TokenLabel = ""
    """Name of the machine or program, for the list of the user's sessions."""


class PasswordBody(Model):
    password: str = Field(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)
    """At least 10 characters, and not easy to guess."""


class SecretBody(Model):
    value: str = Field(min_length=8, max_length=65_536)
    """At least 8 characters: a shorter one could not be hidden in logs without hiding words too."""


class Recorded(Model):
    position: int
    """Of the event in the log."""
