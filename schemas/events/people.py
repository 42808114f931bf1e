"""Sign-in of users. Owner: gateway. Stream: request/cluster."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.events.registry import event
from tenuto.schemas.events.request import ClusterRequest


@event("UserPasswordSet")
class UserPasswordSet(ClusterRequest):
    """The user signs in with this password from now on, and no session of before is valid any more. Tokens stay."""

    name: str
    password_id: str = Field(default="", max_length=64)
    """Id under which the password's hash is kept, in a table outside the record. Empty: the user has no password any more."""
    must_change: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: somebody else knows it, and the user signs in with it only to choose another."""
