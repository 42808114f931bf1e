"""Asks the scheduler what would have happened: one simulation at a time, as each takes a core."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nats.errors import Error as NatsError

from tenuto.schemas import subjects
from tenuto.schemas.what_if import WhatIfAnswer, WhatIfQuestion
from tenuto.services.gateway.cluster.adapters.past_queue import NoPastQueue

SECONDS_MAX = 112.0
"""Longer than the scheduler gives its process, and less than a browser waits."""


class WhatIfQuestions:
    def __init__(self) -> None:
        self._running = ""
        """User for whom one runs; empty: none does."""

    async def of(self, ask: Callable[[str, bytes, float], Awaitable[bytes]], question: WhatIfQuestion, user: str) -> WhatIfAnswer:
        """Result of a simulation. Raises NoPastQueue, also if another one runs: waiting for it would take longer than a browser
        waits."""
        if self._running:
            whose = "for you already" if self._running == user else "for another user"
            raise NoPastQueue("too_many", f"A simulation runs {whose}; ask again when it has ended, within {SECONDS_MAX:.0f} s.")
        self._running = user
        try:
            data = await ask(subjects.WHAT_IF, question.to_json(), SECONDS_MAX)
        except (NatsError, TimeoutError):
            raise NoPastQueue("unavailable", "The scheduler does not answer right now; try again in a few seconds.") from None
        finally:
            self._running = ""
        found = WhatIfAnswer.from_json(data)
        if found.code:
            raise NoPastQueue(found.code, found.error)
        return found
