"""Reads whole checkpoints, to verify that they are still as recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")

AT_ONCE = 2
"""Most verifications at once; each may read hundreds of gigabytes for an hour. They have threads of their own, so that
submissions and downloads need not wait."""


class VerifierBusy(Exception):
    """`str(error)` is one sentence for the user."""


class Verifier:
    """One at a time of a user, AT_ONCE of all."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._threads: anyio.CapacityLimiter | None = None

    async def run(self, user: str, read: Callable[[], T]) -> T:
        """Raises VerifierBusy, and what `read` raises."""
        if user in self._users:
            raise VerifierBusy("A checkpoint is being verified for you already; send this again when that has ended.")
        self._threads = self._threads or anyio.CapacityLimiter(AT_ONCE)
        self._users.add(user)
        try:
            return await anyio.to_thread.run_sync(read, limiter=self._threads)
        finally:
            self._users.discard(user)
