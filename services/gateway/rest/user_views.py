"""Users, their tokens and secrets in answers of the REST interface."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model


class UserView(Model):
    name: str
    admin: bool
    """True if the user may change everything, not only his own."""
    service: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: an account for programs; absent otherwise."""
    owner: str = Field(default="", exclude_if=lambda value: not value)
    """User who keeps the service account's tokens, beside admins; absent without one."""


class TokenView(Model):
    id: str
    """The first characters of its hash."""
    label: str
    created_us: int
    expires_us: int | None
    """None: it does not expire."""
    session: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: it was given at a sign-in; absent otherwise."""
    permissions: tuple[str, ...] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Names of the permissions that it is limited to. Absent: it may do what its user may."""
    workspace: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Workspace that it is limited to. Absent: all."""
    used_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time of the last request with it, to within a minute. Absent: none is known."""


class WhoamiView(UserView):
    permissions: tuple[str, ...]
    """Those in the whole cluster, sorted; a token that is limited to some has no others."""
    token: TokenView | None
    """The one that was shown. None: the cluster's own, which does not expire."""


class SecretView(Model):
    name: str
    updated_us: int


class WaysInView(Model):
    provider: bool
    """True: the cluster has a provider of identities, and `GET /sso` leads there. A name with a password is taken in any case."""


class SignedInView(UserView):
    id: str
    """Of the session, among the user's tokens."""
    expires_us: int | None
    """None: the session does not end by itself."""
    token: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Shown here and never again. Absent: it is in the cookie."""


class LinkView(Model):
    name: str
    """Who is signed in by it."""
    code: str
    """Shown here and never again: it is worth a session, once."""
    expires_us: int


class NewUserView(UserView):
    token: str
    """Shown here and never again."""
    expires_us: int | None
    """None: the token does not expire."""


class NewTokenView(TokenView):
    token: str
    """Shown here and never again."""


class SecretKeyView(Model):
    secrets: int
    """Number of secrets and webhooks' targets that are sealed with the new key."""
    unreadable: int
    """Those that were sealed with a key that was lost before: set them anew."""
    position: int
    """Of the event in the log."""
