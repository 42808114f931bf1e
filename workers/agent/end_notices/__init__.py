"""Notices of the machine's end, as clouds give them to the machine itself: two minutes before a spot instance of AWS ends, half a
minute before Google takes a preemptible one. The agent asks the metadata service of its machine, and announces its end.

That service is not trusted to be there, to answer soon, or to answer sense: nothing that it does ends the agent, delays it or
fills its log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from tenuto.kernel.backoff import Backoff
from tenuto.kernel.clock import Clock
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import run_together
from tenuto.schemas.events.agent import NOTICE_CHARACTERS_MAX
from tenuto.workers.agent.departure import Departure
from tenuto.workers.agent.end_notices import aws, gcp
from tenuto.workers.agent.end_notices.metadata import MetadataService, NoAnswer
from tenuto.workers.agent.end_notices.notice import EndNotice, Look

logger = logging.getLogger(__name__)

ADDRESS = "http://169.254.169.254"
"""Address of the metadata service in both clouds: it is on the machine's own link, and needs no name lookup."""
TROUBLE_SECONDS_FIRST = 2.0
TROUBLE_SECONDS_MAX = 20.0
"""Longest pause after failures: short enough that most of a two-minute notice is left."""
FAILURES_SAID_MIN = 3
"""Failures in a row before one is logged: single ones are usual while a machine boots."""
SAY_SECONDS_MIN = 3_600.0
"""Least time between two warnings, whatever happens: a service that fails every other time must not fill the log."""
LOOKS: dict[str, dict[str, Callable[[MetadataService, Clock], Look]]] = {
    "aws": {"spot": aws.Spot, "maintenance": aws.Maintenance},
    "gcp": {"preempted": gcp.Preempted, "maintenance": gcp.MaintenanceEvent},
}
"""Values that are asked for in each cloud, by their names."""


class EndNotices:
    """Asks for notices until the machine's end is certain."""

    def __init__(self, settings: Settings, departure: Departure, clock: Clock) -> None:
        """Raises SettingsError."""
        if settings.end_notice not in LOOKS:
            raise SettingsError(f"TENUTO_END_NOTICE is {settings.end_notice!r}, but must be aws, gcp or empty.")
        self._looks = LOOKS[settings.end_notice]
        self._service = MetadataService(_checked(settings.end_notice_url or ADDRESS))
        self._departure, self._clock = departure, clock
        self._said_at: float | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            await run_together(**{name: self._watch(make(self._service, self._clock)) for name, make in self._looks.items()})
        finally:
            await self._service.close()

    async def _watch(self, look: Look) -> None:
        """Asks for one of the values, at its own pace."""
        trouble = Backoff(TROUBLE_SECONDS_FIRST, TROUBLE_SECONDS_MAX)
        while self._departure.leaving != "now":
            try:
                notice = await look.ask()
            except NoAnswer as error:
                self._failed(trouble.failures + 1, str(error))
            except Exception as error:  # a defect here must not end an agent whose trials are well
                logger.debug("end notices", exc_info=True)
                self._failed(trouble.failures + 1, f"cannot be understood ({type(error).__name__})")
            else:
                trouble.worked()
                if notice is not None:
                    self._take(notice)
                await asyncio.sleep(look.pause_seconds)
                continue
            await asyncio.sleep(trouble.failed())
        await asyncio.Event().wait()

    def _take(self, notice: EndNotice) -> None:
        before = self._departure.leaving, self._departure.leaves_at_us
        # First, so that the heartbeat of the step has it. The last one that meant a step stays.
        if notice.step or not self._departure.notice:
            self._departure.notice = notice.words[:NOTICE_CHARACTERS_MAX]
        seconds_max = None
        if notice.ends_at_us is not None:
            self._departure.learn_end(notice.ends_at_us)
            seconds_max = self._departure.seconds_left
        if notice.step:
            self._departure.announce(notice.step, seconds_max)
        if before != (self._departure.leaving, self._departure.leaves_at_us):
            logger.warning("the machine's provider gives notice: %s", notice.words)

    def _failed(self, failures: int, why: str) -> None:
        now = self._clock.monotonic()
        if failures < FAILURES_SAID_MIN or (self._said_at is not None and now < self._said_at + SAY_SECONDS_MIN):
            return
        self._said_at = now
        logger.warning(
            "the metadata service at %s %s: until it answers, no notice of the machine's end is seen", self._service.address, why
        )


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.path in ("", "/") and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or parts.username or parts.query or parts.fragment:
        raise SettingsError(f"TENUTO_END_NOTICE_URL is {url!r}, but must be an address such as {ADDRESS}.")
    return url.rstrip("/")
