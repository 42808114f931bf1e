"""Asks the scheduler about earlier moments: users in turn, one question at a time, as one process of it answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nats.errors import Error as NatsError

from tenuto.schemas import subjects
from tenuto.schemas.queue import PastAnswer, PastQuestion
from tenuto.services.gateway.http.fair_queue import Turns

SECONDS_MAX = 15.0
"""Longer than the scheduler gives its process."""
WAITING_MAX = 32
"""Each waits some 100 ms; more pages that play the log at once see it a moment later."""


class NoPastQueue(Exception):
    """`str(error)` is one sentence for the user. `code`: not_found, unavailable or too_many."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Earlier:
    def __init__(self) -> None:
        self._turns = Turns(of_one_user=1, at_once=1)
        self._waiting = 0

    async def at(self, ask: Callable[[str, bytes, float], Awaitable[bytes]], question: PastQuestion, user: str) -> PastAnswer:
        """Raises NoPastQueue."""
        if self._waiting >= WAITING_MAX:
            raise NoPastQueue("too_many", "Too many look at earlier moments of the queue; try again in a few seconds.")
        self._waiting += 1
        try:
            async with self._turns.turn(user):
                data = await ask(subjects.PAST, question.to_json(), SECONDS_MAX)
        except (NatsError, TimeoutError):
            raise NoPastQueue("unavailable", "The scheduler does not answer right now; try again in a few seconds.") from None
        finally:
            self._waiting -= 1
        found = PastAnswer.from_json(data)
        if found.code:
            raise NoPastQueue(found.code, found.queue.error)
        return found
