"""Users, their tokens and secrets in answers of the REST interface."""

from __future__ import annotations

from tenuto.schemas.base import Model


class UserView(Model):
    name: str
    admin: bool
    """True if the user may change everything, not only his own."""


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
