"""Compute Engine's notices: that the instance was preempted, and that maintenance of its host ends it.

The metadata server answers as soon as a value changes (`wait_for_change`), so nothing is lost of the half minute that a
preemption leaves.
"""

from __future__ import annotations

from tenuto.kernel.clock import Clock
from tenuto.workers.agent.end_notices.metadata import MetadataService, NoAnswer
from tenuto.workers.agent.end_notices.notice import EndNotice

FLAVOR = "Metadata-Flavor"
WAITS_SECONDS = 60.0
"""Time after which the server answers without a change."""
PAUSE_SECONDS = 1.0
"""Pause between an answer and the next question: a server that does not wait must not be asked in a loop."""
PREEMPTED_SECONDS = 30.0
"""Time that a preempted instance has after the notice before it is cut off, as Google documents it."""
ETAG_CHARACTERS_MAX = 100


class MetadataValue:
    """One value of the instance, waited for."""

    pause_seconds = PAUSE_SECONDS
    name = ""

    def __init__(self, service: MetadataService, clock: Clock) -> None:
        self._service, self._clock = service, clock
        self._etag = ""

    async def ask(self) -> EndNotice | None:
        query, waits = {"alt": "text"}, 0.0
        if self._etag:
            query |= {"wait_for_change": "true", "timeout_sec": f"{WAITS_SECONDS:.0f}", "last_etag": self._etag}
            waits = WAITS_SECONDS
        answer = await self._service.ask(
            f"/computeMetadata/v1/instance/{self.name}", headers={FLAVOR: "Google"}, query=query, waits_seconds=waits
        )
        if answer.status != 200:
            raise NoAnswer(f"answers with status {answer.status}")
        if answer.headers.get(FLAVOR) != "Google":
            raise NoAnswer("is not that of Google")
        etag = answer.headers.get("ETag", "")
        self._etag = etag if etag.isascii() and etag.isprintable() and len(etag) <= ETAG_CHARACTERS_MAX else ""
        return self.read(answer.text.strip())

    def read(self, value: str) -> EndNotice | None:
        """Raises NoAnswer."""
        raise NotImplementedError


class Preempted(MetadataValue):
    name = "preempted"

    def read(self, value: str) -> EndNotice | None:
        if value == "FALSE":
            return None
        if value != "TRUE":
            raise NoAnswer("does not say whether the instance was preempted")
        return EndNotice("now", self._clock.now_us() + round(PREEMPTED_SECONDS * 1e6), "the instance was preempted")


class MaintenanceEvent(MetadataValue):
    """Time until the end: a minute, for instances with GPUs an hour. The value does not say which, and what saves at once is safe
    in either."""

    name = "maintenance-event"

    def read(self, value: str) -> EndNotice | None:
        if value == "TERMINATE_ON_HOST_MAINTENANCE":
            return EndNotice("now", None, "maintenance of the host ends the instance")
        if value not in ("NONE", "MIGRATE_ON_HOST_MAINTENANCE"):
            raise NoAnswer("gives a maintenance event that is unknown")
        return None
