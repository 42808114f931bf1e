"""What the REST door answers about users, their tokens and secrets."""

from __future__ import annotations

from tenuto.schemas.base import Model


class UserView(Model):
    name: str
    admin: bool
    """Whether it may change everything, and not only what is its own."""


class TokenView(Model):
    id: str
    """The first characters of its hash."""
    label: str
    created_us: int
    expires_us: int | None
    """None: it does not expire."""


class WhoamiView(UserView):
    token: TokenView | None
    """The one that was shown. None: the cluster's own, which does not expire."""


class SecretView(Model):
    name: str
    updated_us: int


class NewUserView(UserView):
    token: str
    """Shown here and never again."""
    expires_us: int | None
    """None: the token does not expire."""


class NewTokenView(TokenView):
    token: str
    """Shown here and never again."""
