"""Heartbeats from a thread of its own while the agent's event loop is busy.

The event loop's work takes milliseconds, but a worker may send it 64 MiB of reports in one call, many workers may do so at once,
and an agent whose loop is blocked for longer than its lease would lose every trial of the node. So a second connection repeats
the last heartbeat meanwhile, marked as repeated: the agent is alive, and the list of its allocations may be out of date.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time

from nats.errors import Error as NatsError

from tenuto.kernel import bus as bus_module
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Heartbeat

logger = logging.getLogger(__name__)

LATE_HEARTBEATS = 2
"""Heartbeats that the event loop must have missed before the thread repeats the last one."""
BUSY_SECONDS_MAX = 300.0
"""Longest time that heartbeats are repeated. An event loop that is blocked for longer does not recover: the agent is given up,
and its trials go on elsewhere."""


class SpareHeartbeat:
    def __init__(self, settings: Settings, agent_id: str) -> None:
        self._settings, self._agent_id = settings, agent_id
        self._last: tuple[Heartbeat, float] | None = None
        self._stopping = threading.Event()
        self.repeated = 0
        """Number of heartbeats that this thread has sent since the start."""

    def note(self, heartbeat: Heartbeat) -> None:
        """The event loop sends this heartbeat now."""
        self._last = heartbeat, time.monotonic()

    async def run(self) -> None:
        """Runs until cancelled."""
        self._stopping.clear()
        thread = threading.Thread(target=self._live, name="spare-heart", daemon=True)  # an unreachable bus must not delay the end
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopping.set()

    def _live(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        bus = await bus_module.connect(self._settings, f"agent {self._agent_id} (spare)")
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(self._settings.heartbeat_seconds)
                heartbeat = self._due()
                if heartbeat is None or not bus.is_connected or self._stopping.is_set():
                    continue
                self.repeated += 1
                with contextlib.suppress(NatsError, OSError):
                    await bus.publish(subjects.heartbeat(self._agent_id), heartbeat.to_json())
                    await bus.flush(max(1, int(self._settings.heartbeat_seconds)))
        finally:
            await bus_module.close(bus)

    def _due(self) -> Heartbeat | None:
        if self._last is None:
            return None
        heartbeat, at = self._last
        late = time.monotonic() - at
        if not LATE_HEARTBEATS * self._settings.heartbeat_seconds < late < BUSY_SECONDS_MAX:
            return None
        return heartbeat.model_copy(update={"repeated": True})
