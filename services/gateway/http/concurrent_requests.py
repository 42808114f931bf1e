"""Requests that are under way: their limit for one user, and the state of their responses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from starlette.types import Message, Scope, Send

from tenuto.kernel.connection_shares import holder
from tenuto.schemas.text import visible
from tenuto.services.gateway.http.context import asking, asking_token
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.rights.permissions import PermissionRule, Where

REQUESTS_AT_ONCE_MAX = 200
"""Most requests under way of one user, or of one address if no user is known: more than a page, its streams and a sweep of
scripts need, and less than a quarter of all connections."""
UNREAD_BYTES_FREE = 64 << 10
"""Bytes of a response that do not count as unread: as much as a connection buffers in any case."""


class AtOnce:
    """Requests under way, by holder: they occupy connections, which others need, too."""

    def __init__(self, held: Counter[str]) -> None:
        """`held`: number of requests by holder, which `tenuto status` shows."""
        self._held = held

    @contextlib.contextmanager
    def held(self, whose: str) -> Iterator[None]:
        """Holds a place for a request. Raises DoorError."""
        if whose and self._held[whose] >= REQUESTS_AT_ONCE_MAX:
            raise DoorError(
                "too_many",
                f"{visible(whose)} has {REQUESTS_AT_ONCE_MAX} requests under way already, the most at once; wait for answers, "
                "and read them (docs/rest.md, Limits).",
            )
        self._held[whose] += 1
        try:
            yield
        finally:
            self._held[whose] -= 1
            if not self._held[whose]:
                del self._held[whose]


def holder_of(scope: Scope, rule: PermissionRule) -> str:
    """Holder that the request counts for: its user, or its address if it has none. Empty for the cluster's own token, which has
    no limits."""
    if rule.where is Where.OPEN:
        return f"the address {holder(str((scope.get('client') or ('',))[0]))}"
    return asking() if asking_token() is not None else ""


class ResponseStart:
    """Tracks whether the response has started; afterwards no error can be sent. A long one ends when the client has read it,
    except for the part that the connection buffers: until then its sender's turn goes on."""

    def __init__(self, send: Send) -> None:
        self._send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        self.started = True
        body = message.get("body", b"")
        if len(body) > UNREAD_BYTES_FREE and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            message = {**message, "body": b""}
        await self._send(message)
