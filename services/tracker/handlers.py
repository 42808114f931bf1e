"""Receives what agents report: what decides becomes events, bulk data goes into tables. Each returns when the batch is committed.

Reports that cannot be read are raised as Poison: the ingress parks them and gives the others again, which changes nothing for
those that were already recorded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg
from pydantic import ValidationError

from tenuto.kernel import telemetry
from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.received_reports import Poison, Report, all_poison, demand_token, read_all
from tenuto.kernel.report_tokens import ReportTokens
from tenuto.schemas.base import Model
from tenuto.schemas.ids import experiment_of, trial_of
from tenuto.schemas.reports import TRACKER_REPORT, CheckpointReport, LogMatchReport, LogsReport, MetricsRead, TrackerReport
from tenuto.schemas.text import INTEGER_MAX, storable_json
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.projections.logs import Logs, write_logs
from tenuto.services.tracker.projections.metrics import write_metrics
from tenuto.services.tracker.state import State

logger = logging.getLogger(__name__)

_TRIAL_ID = re.compile(r"[1-9][0-9]{0,17}-[1-9][0-9]{0,8}")
_ALLOCATION_ID = re.compile(r"[1-9][0-9]{0,17}-[1-9][0-9]{0,8}-[1-9][0-9]{0,8}")
BATCHES_MAX = 2**62
"""Largest number of batches that the tables can hold."""

M = TypeVar("M", bound=Model)


class ReportReceiver:
    def __init__(self, loop: ServiceLoop[State], log: EventLog, pool: asyncpg.Pool, clock: Clock, tokens: ReportTokens) -> None:
        self._loop, self._log, self._pool, self._clock, self._tokens = loop, log, pool, clock, tokens

    async def record(self, reports: Sequence[Report]) -> None:
        """Lane `tracker`."""
        read = read_all(reports, lambda report: self._checked(report, _tracker_report(report)))
        commands = [
            RecordTrialReport(report.id, self._clock.now_us(), said, report.trace)
            for report, said in zip(reports, read, strict=True)
        ]
        await self._catch_up(commands)
        with telemetry.span("tracker record", links=[report.trace for report in reports if report.trace]):
            answers = await self._loop.submit_many(commands)
        for report, answer in zip(reports, answers, strict=True):
            if isinstance(answer, Refused):  # a defect of ours: what is merely not current is recorded as ReportRefused
                raise Poison(report, str(answer))

    async def _catch_up(self, commands: Sequence[RecordTrialReport]) -> None:
        """A worker may report before this service has read of its allocation. Where a report's allocation is not known as the
        current one, the log is first read to its present end: what the report relies on was recorded before it was sent."""
        await self._loop.wait_ready()
        state = self._loop.state
        for command in commands:
            report = command.report
            trial = state.trial(experiment_of(report.trial_id), report.trial_id)
            if trial is None or trial.allocation_id != report.allocation_id:
                await self._loop.wait_position(await self._log.head())
                return

    async def store_metrics(self, reports: Sequence[Report]) -> None:
        """Lane `metrics`."""
        read = read_all(reports, lambda report: self._parsed(report, MetricsRead))
        parsed = {report.id: said for report, said in zip(reports, read, strict=True)}

        async def write(some: Sequence[Report]) -> None:
            await write_metrics(self._pool, [parsed[report.id] for report in some])

        await _write(reports, write)

    async def store_logs(self, reports: Sequence[Report]) -> None:
        """Lane `logs`."""
        read = read_all(reports, lambda report: Logs(report.id, report.agent_id, self._parsed(report, LogsReport)))
        parsed = {report.id: said for report, said in zip(reports, read, strict=True)}

        async def write(some: Sequence[Report]) -> None:
            await write_logs(self._pool, [parsed[report.id] for report in some])

        await _write(reports, write)

    def _parsed(self, report: Report, model: type[M]) -> M:
        try:
            return self._checked(report, model.from_json(storable_json(report.body)))
        except ValidationError as error:
            raise Poison(report, f"it cannot be read: {error}") from error

    def _checked(self, report: Report, body: M) -> M:
        """Returns the body of a report, checked to be one that its sender may send. Raises Poison."""
        allocation_id = _storable(report, body)
        if trial_of(allocation_id) != getattr(body, "trial_id", ""):
            raise Poison(report, f"allocation {allocation_id} does not belong to trial {getattr(body, 'trial_id', '')}")
        demand_token(self._tokens, report, allocation_id)
        if isinstance(body, LogMatchReport) and body.agent_id != report.agent_id:
            raise Poison(report, f"agent {report.agent_id} reports what agent {body.agent_id} has read")
        return body


async def _write(reports: Sequence[Report], write: Callable[[Sequence[Report]], Awaitable[None]]) -> None:
    """All at once; where a value cannot be stored, one after the other, to name the reports that have one."""
    try:
        await write(reports)
    except asyncpg.DataError:
        poisons = []
        for report in reports:
            try:
                await write([report])
            except asyncpg.DataError as error:
                poisons.append(Poison(report, f"it cannot be stored: {error}"))
        if poisons:
            raise all_poison(poisons) from None


def _tracker_report(report: Report) -> TrackerReport:
    try:
        return TRACKER_REPORT.validate_json(storable_json(report.body))
    except ValidationError as error:
        raise Poison(report, f"it cannot be read: {error}") from error


def _storable(report: Report, body: Model) -> str:
    """Ids are read as numbers further on, and counts stored in 64 bits. Returns the allocation's id; raises Poison."""
    trial_id, allocation_id = getattr(body, "trial_id", ""), getattr(body, "allocation_id", "")
    if not _TRIAL_ID.fullmatch(trial_id) or not _ALLOCATION_ID.fullmatch(allocation_id):
        raise Poison(report, f"trial {trial_id!r} or allocation {allocation_id!r} is not an id")
    if isinstance(body, MetricsRead):
        _check_points(report, body)
    elif getattr(body, "batches", 0) > BATCHES_MAX or getattr(body, "length", 0) > BATCHES_MAX:
        raise Poison(report, "it counts more batches than can be stored")
    if isinstance(body, CheckpointReport) and not body.checkpoint_id.startswith(f"{allocation_id}-"):
        raise Poison(report, f"checkpoint {body.checkpoint_id!r} is not named for its allocation {allocation_id}")
    return str(allocation_id)


def _check_points(report: Report, body: MetricsRead) -> None:
    """Raises Poison."""
    if max([abs(point["batches"]) for point in body.points], default=0) > BATCHES_MAX:
        raise Poison(report, "it counts more batches than can be stored")
    if max([abs(point["time_us"]) for point in body.points], default=0) > INTEGER_MAX:
        raise Poison(report, "it cannot be stored: the time of a point needs more than 64 bits")
