"""Reachability of the Docker daemon. While it does not answer, its containers go on (a killed daemon ends them only at its next
start, if at all), and their state is unknown: no start is tried, no end is believed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from tenuto.workers.agent.change_signal import Changed

logger = logging.getLogger(__name__)

PING_SECONDS = 2.0
"""Pause between questions: about as long as the pause between looks at a container."""
PING_SECONDS_MAX = 5.0
"""Longest wait for an answer. A daemon under load answers this question, which needs no lock of its, within milliseconds."""
TIDY_SECONDS = 60.0
"""Pause between looks for containers of no run: a call that this side gave up may still be carried out."""


class DaemonAway(OSError):
    """The Docker daemon does not answer."""


class Presence:
    """Checks regularly, in a thread of its own, that the daemon answers."""

    def __init__(self, url: str, ping: Callable[[], object], *, here: bool) -> None:
        """`ping`: asks; raises OSError. `here`: the daemon has just answered."""
        self._url, self._ping = url, ping
        self._pool = ThreadPoolExecutor(1, "docker-ping")
        self._task: asyncio.Task[None] | None = None
        self.away = "" if here else f"the Docker daemon at {url} does not answer"
        """Sentence without its full stop; empty while the daemon answers."""
        self.answered = Changed()
        """Signal of each answer."""

    def begin(self, tidy: Callable[[], Awaitable[None]]) -> None:
        """`tidy` is called when the daemon is back, and from time to time. It raises OSError."""
        self._task = asyncio.create_task(self._run(tidy), name="docker-presence")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, tidy: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        tidy_due = loop.time() + TIDY_SECONDS
        while True:
            try:
                await loop.run_in_executor(self._pool, self._ping)
            except OSError as error:
                if not self.away:
                    self.away = f"the Docker daemon at {self._url} does not answer"
                    logger.warning("%s (%s): no trial that names an image starts here meanwhile", self.away, error)
            else:
                if self.away:
                    logger.warning("the Docker daemon at %s answers again", self._url)
                    self.away, tidy_due = "", loop.time()
                self.answered.notify()
            if not self.away and loop.time() >= tidy_due:
                tidy_due = loop.time() + TIDY_SECONDS
                try:
                    await tidy()
                except OSError as error:
                    logger.info("containers of no run cannot be looked for: %s", error)
            await asyncio.sleep(PING_SECONDS)
