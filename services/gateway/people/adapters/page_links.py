"""Links that open the page signed in: each begins a session once, for a minute, and is kept in this process's memory alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

LINK_SECONDS = 60.0
"""Life of a link: a browser opens within seconds."""
LINKS_PER_USER_MAX = 10
"""Most links of a user at once; beyond it the oldest becomes invalid."""


@dataclass(frozen=True)
class PageLink:
    user: str
    asked_by: str
    """SHA-256 of the token of the session that asked for it. Empty: the cluster's own."""
    ends_us: int | None
    """End of that session. None: it has no set end."""
    until: float


class PageLinks:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._links: dict[bytes, PageLink] = {}

    def make(self, user: str, asked_by: str, ends_us: int | None) -> str:
        """The code of a new link."""
        code, now = secrets.token_urlsafe(32), self._now()
        self._links = {key: link for key, link in self._links.items() if link.until > now}
        own = [key for key, link in self._links.items() if link.user == user]
        for key in own[: max(0, len(own) - LINKS_PER_USER_MAX + 1)]:
            del self._links[key]
        self._links[_hashed(code)] = PageLink(user, asked_by, ends_us, now + LINK_SECONDS)
        return code

    def take(self, code: str) -> PageLink | None:
        """Link of the code, which works once; None: it is unknown, used or expired."""
        link = self._links.pop(_hashed(code), None)
        return None if link is None or self._now() >= link.until else link


def _hashed(code: str) -> bytes:
    """Key of the code, so that the time of a comparison reveals nothing about codes."""
    return sha256(code.encode()).digest()
