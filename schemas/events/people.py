"""Sign-in of users. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest

SUBJECT_CHARACTERS_MAX = 512
"""Address of an issuer, and a subject: 255 characters at most by the standard."""
GROUP_CHARACTERS_MAX = 256
GROUPS_MAX = 500
"""Most groups of one user: companies have thousands, and send those that matter."""


@event("UserPasswordSet")
class UserPasswordSet(ClusterRequest):
    """The user signs in with this password from now on, and no session of before is valid any more. Tokens stay."""

    name: str
    password_id: str = Field(default="", max_length=64)
    """Id under which the password's hash is kept, in a table outside the record. Empty: the user has no password any more."""
    must_change: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: another person knows the password; the user can only sign in with it to choose a new one."""


@event("UserLinked")
class UserLinked(ClusterRequest):
    """The user signs in at a provider of identities, as this one there, whatever the name there is."""

    name: str
    subject: str = Field(default="", max_length=SUBJECT_CHARACTERS_MAX)
    """Issuer and subject, with a space between. Empty: the first who comes from there with this name."""


@event("UserGroupsSet")
class UserGroupsSet(ClusterRequest):
    """Groups of the user, as the provider of identities told at the last sign-in."""

    name: str
    groups: tuple[Annotated[str, Field(max_length=GROUP_CHARACTERS_MAX)], ...] = Field(max_length=GROUPS_MAX)
