"""Receives what agents report about their workers: each returns when the batch is committed."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.ingress import Poison, Report
from tenuto.kernel.loop import ServiceLoop
from tenuto.schemas.reports import LAUNCHER_REPORT, LauncherReport
from tenuto.services.launcher.commands import RecordReport
from tenuto.services.launcher.state import State


class Receiver:
    def __init__(self, loop: ServiceLoop[State], log: EventLog, clock: Clock) -> None:
        self._loop, self._log, self._clock = loop, log, clock

    async def record(self, reports: Sequence[Report]) -> None:
        """Lane `launcher`."""
        commands = [RecordReport(report.id, self._clock.now_us(), _parsed(report), report.trace) for report in reports]
        await self._loop.wait_ready()
        if any(command.report.allocation_id not in self._loop.state.allocations for command in commands):
            # The grant that the report relies on was recorded before it was sent; read the log up to it first.
            await self._loop.wait_position(await self._log.head())
        for report, answer in zip(reports, await self._loop.submit_many(commands), strict=True):
            if isinstance(answer, Refused):
                raise Poison(report, str(answer))


def _parsed(report: Report) -> LauncherReport:
    try:
        return LAUNCHER_REPORT.validate_json(report.body)
    except ValidationError as error:
        raise Poison(report, f"not a report of this lane: {error.errors()[0]['msg']}") from error
