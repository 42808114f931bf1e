"""Messages of agents to the launcher: reports about workers, and heartbeats; and the expiry of leases without any."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel import telemetry
from tenuto.kernel.backoff import Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.received_reports import Poison, Report, demand_token, read_all
from tenuto.kernel.report_tokens import ReportTokens
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.agent_limits import unacceptable
from tenuto.schemas.assignments import Assignments, Heartbeat, HeartbeatReply
from tenuto.schemas.reports import LAUNCHER_REPORT, LauncherReport
from tenuto.schemas.text import storable_json, visible
from tenuto.services.launcher.adapters.backlog import Backlogs
from tenuto.services.launcher.commands import EndRestartPauses, ExpireLease, RecordHeartbeat, RecordRunReport
from tenuto.services.launcher.effects import Assigned
from tenuto.services.launcher.effects.assigning import assignments_of
from tenuto.services.launcher.handlers.agent_rate_limits import Paces
from tenuto.services.launcher.handlers.leases import Leases
from tenuto.services.launcher.policies.membership import refusal
from tenuto.services.launcher.state import State

logger = logging.getLogger(__name__)

TICKS_PER_HEARTBEAT = 4
"""Looks at leases per heartbeat period: an agent is given up at most a quarter of it late."""
RIVAL_HEARTBEATS = 3
"""Two agents of one name show within so many heartbeats. One that lost its disk is let in again after as many: sooner than its
lease ends."""
HEAD_SECONDS_BETWEEN = 0.5


class Listener:
    """Nothing is answered, recorded or given up before the launcher has read the log to the end it had at the start: until
    then it does not know all that it had assigned."""

    def __init__(
        self,
        loop: ServiceLoop[State],
        log: EventLog,
        bus: Client,
        clock: Clock,
        settings: Settings,
        backlogs: Backlogs,
        tokens: ReportTokens,
        assigned: Assigned,
    ) -> None:
        self._loop, self._log, self._bus, self._clock, self._settings = loop, log, bus, clock, settings
        self._tokens = tokens
        self._tick_seconds = settings.heartbeat_seconds / TICKS_PER_HEARTBEAT
        self._leases = Leases(settings.lease_seconds_max, self._tick_seconds)
        self._backlogs, self._assigned = backlogs, assigned
        self._caught_up = asyncio.Event()
        self._received: dict[str, tuple[str, int]] = {}
        """Last report of each agent: its spool and sequence."""
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._warn, self._paces = Seldom(logger).warn, Paces(settings.heartbeat_seconds)

    async def run(self) -> None:
        """Reads the log, then receives heartbeats and watches leases, until cancelled."""
        # Before the log is read: heartbeats that come meanwhile prolong leases, although they are not answered in full.
        heartbeats = await self._bus.subscribe(subjects.HEARTBEATS, cb=self._on_heartbeat)
        try:
            await self._loop.wait_ready()
            await self._loop.wait_position(await self._head())
            self._caught_up.set()
            while True:
                await self._watch_leases()
                await self._end_pauses()
                await asyncio.sleep(self._tick_seconds)
        finally:
            for task in self._answering.values():
                task.cancel()
            with contextlib.suppress(NatsError):
                await heartbeats.unsubscribe()

    async def record(self, reports: Sequence[Report]) -> None:
        """Lane `launcher`; returns when all are committed."""
        await self._caught_up.wait()
        read = read_all(reports, lambda report: _parsed(report, self._tokens))
        commands = [
            RecordRunReport(report.id, self._clock.now_us(), said, report.trace)
            for report, said in zip(reports, read, strict=True)
        ]
        for report in reports:
            # Set before the commit, so that a heartbeat that is judged meanwhile counts as older than the report.
            self._received[report.agent_id] = report.spool_id, report.sequence
        with telemetry.span("launcher record", links=[report.trace for report in reports if report.trace]):
            answers = await self._loop.submit_many(commands)
        for report, answer in zip(reports, answers, strict=True):
            if isinstance(answer, Refused):  # a defect of ours: what is merely late decides nothing
                raise Poison(report, str(answer))

    async def _head(self) -> int:
        while True:
            try:
                return await self._log.head()
            except LogUnavailable:
                await asyncio.sleep(HEAD_SECONDS_BETWEEN)

    async def _on_heartbeat(self, message: Msg) -> None:
        """Answers in a task of its own, one per agent: what waits for the database must not hold up other agents' leases."""
        try:
            heartbeat = Heartbeat.from_json(message.data)
        except ValidationError as error:
            sender = visible(subjects.agent_of(message.subject))
            self._warn(f"a heartbeat of agent {sender} cannot be read ({error.error_count()} errors); is it of another version?")
            await self._reply(message, None, error="The launcher cannot read this heartbeat; run the same version of Tenuto.")
            return
        if heartbeat.agent_id != subjects.agent_of(message.subject):
            self._warn(
                f"agent {subjects.agent_of(message.subject)} sent a heartbeat of {visible(heartbeat.agent_id[:100])}: refused"
            )
            await self._reply(message, None, error=f"This agent may not speak for {heartbeat.agent_id}.")
            return
        if problem := unacceptable(heartbeat):
            self._warn(f"agent {heartbeat.agent_id} offers what is refused: {problem}")
            await self._reply(message, None, error=f"The launcher does not take what this agent offers: {problem}.")
            return
        if refused := refusal(self._loop.state, heartbeat.agent_id, heartbeat.pool):
            await self._reply(message, None, error=refused)
            return
        rival_seconds = RIVAL_HEARTBEATS * self._settings.heartbeat_seconds
        now = self._clock.monotonic()
        if not self._leases.hear(heartbeat.agent_id, heartbeat.spool_id, now, rival_seconds):
            rival = f"Another agent is named {heartbeat.agent_id}; give this one another name by TENUTO_AGENT_ID."
            await self._reply(message, None, error=rival)
            return
        if heartbeat.repeated:  # its sender reads no answer
            return
        self._backlogs.hear(heartbeat.agent_id, heartbeat.backlog)
        if not self._caught_up.is_set():
            await self._reply(message, None)
            return
        before = self._answering.get(heartbeat.agent_id)
        if before is not None and not before.done():
            # An earlier heartbeat still waits for the database: this one gets what is known, and submits nothing more.
            await self._reply(message, await self._unrecorded(heartbeat))
            return
        task = asyncio.create_task(self._answer(heartbeat, message))
        self._answering[heartbeat.agent_id] = task
        task.add_done_callback(lambda done: self._answered(heartbeat.agent_id, done))

    async def _answer(self, heartbeat: Heartbeat, message: Msg) -> None:
        spool_id, sequence = self._received.get(heartbeat.agent_id, ("", 0))
        fresh = spool_id != heartbeat.spool_id or heartbeat.launcher_sequence >= sequence
        command = RecordHeartbeat(self._clock.new_id(), self._clock.now_us(), heartbeat, fresh)
        # Nearly all heartbeats change nothing; those need no turn of the loop.
        if self._loop.core.decide(self._loop.state, command):
            if self._paces.take(heartbeat.agent_id, self._clock.monotonic()):
                await self._loop.submit(command)
            else:
                self._warn(f"agent {heartbeat.agent_id} changes what it offers too often: some of it is passed over")
                await self._reply(message, await self._unrecorded(heartbeat))
                return
        await self._reply(message, await self._assignments(heartbeat.agent_id))

    def _answered(self, agent_id: str, task: asyncio.Task[None]) -> None:
        if self._answering.get(agent_id) is task:
            del self._answering[agent_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a heartbeat of agent %s was not recorded; its next one will be: %s", agent_id, error)

    async def _unrecorded(self, heartbeat: Heartbeat) -> Assignments | None:
        """Answer to an agent whose heartbeat is not recorded: its assignments. None for one that ends: it asks again until it is
        recorded."""
        return None if heartbeat.gone else await self._assignments(heartbeat.agent_id)

    async def _assignments(self, agent_id: str) -> Assignments:
        return await self._assigned.completed(assignments_of(self._loop.state, agent_id, self._loop.position), agent_id)

    async def _reply(self, message: Msg, assignments: Assignments | None, error: str = "") -> None:
        reply = HeartbeatReply(lease_seconds=self._settings.lease_seconds_max, assignments=assignments, error=error)
        with contextlib.suppress(NatsError):  # lost; the agent asks again
            await message.respond(reply.to_json())

    async def _watch_leases(self) -> None:
        now = self._clock.monotonic()
        for agent_id in self._leases.look(self._loop.state.agents, now, connected=self._bus.is_connected):
            reason = f"no heartbeat for {self._settings.lease_seconds_max:g} s"
            command = ExpireLease(self._clock.new_id(), self._clock.now_us(), agent_id, reason)
            try:
                if await self._loop.submit(command):
                    logger.warning("agent %s is lost: %s", agent_id, reason)
            except LogUnavailable as error:
                logger.warning("agent %s is silent, but that cannot be recorded now: %s", agent_id, error)

    async def _end_pauses(self) -> None:
        now_us = self._clock.now_us()
        pauses = self._loop.state.pauses
        if not any(at <= now_us for at in pauses.values()):
            return
        try:
            await self._loop.submit(EndRestartPauses(self._clock.new_id(), now_us))
        except LogUnavailable as error:
            logger.warning("trials wait longer than they should before they start again; that cannot be recorded: %s", error)


def _parsed(report: Report, tokens: ReportTokens) -> LauncherReport:
    """Raises Poison."""
    try:
        parsed: Any = LAUNCHER_REPORT.validate_json(storable_json(report.body))
    except ValidationError as error:
        raise Poison(report, f"it cannot be read: {error}") from error
    if parsed.agent_id != report.agent_id:
        raise Poison(report, f"agent {report.agent_id} reports in the name of {parsed.agent_id}")
    demand_token(tokens, report, parsed.allocation_id)
    checked: LauncherReport = parsed
    return checked
