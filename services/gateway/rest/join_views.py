"""Join tokens in answers of the REST interface."""

from __future__ import annotations

from tenuto.schemas.base import Model


class JoinTokenView(Model):
    id: str
    pool: str
    """Pool that its agents offer their slots to."""
    label: str
    created_us: int
    expires_us: int
    uses: int
    """Agents that joined by it."""
    uses_max: int


class NewJoinTokenView(JoinTokenView):
    url: str
    """Address of the gateway in the token."""
    token: str
    """The token itself, which is shown only in this answer: for `tenuto agent run --join`."""
