"""Order of waiting requests for a few places: users in turn, so that no user waits for all requests of another."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class Turns:
    """Turns for one asyncio loop."""

    def __init__(self, *, of_one_user: int, at_once: int | None = None) -> None:
        """`at_once`: places of all users together; None: only each user's are counted."""
        self._of_one_user, self._at_once = of_one_user, at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by user; the users in the order of their turns."""
        self._holding: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Waits for a place, and holds it."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(waiting)
        self._give()
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.cancelled():
                self._forget(user, waiting)
            else:
                self._take_back(user)  # it was given just before
            raise
        try:
            yield
        finally:
            self._take_back(user)

    def _give(self) -> None:
        while self._at_once is None or self._holding.total() < self._at_once:
            user = next((name for name in self._waiting if self._holding[name] < self._of_one_user), None)
            if user is None:
                return
            queue = self._waiting.pop(user)
            waiting = queue.popleft()
            if queue:
                self._waiting[user] = queue  # behind all others
            if not waiting.done():
                self._holding[user] += 1
                waiting.set_result(None)

    def _take_back(self, user: str) -> None:
        self._holding[user] -= 1
        if not self._holding[user]:
            del self._holding[user]
        self._give()

    def _forget(self, user: str, waiting: asyncio.Future[None]) -> None:
        queue = self._waiting.get(user)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._waiting[user]
