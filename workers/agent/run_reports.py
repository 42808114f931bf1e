"""The agent's own reports about its runs, in their order: a report after that of the end would be refused."""

from __future__ import annotations

import asyncio
import logging
import sqlite3

from tenuto.kernel.backoff import Backoff
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.reports import (
    LauncherReport,
    RendezvousReport,
    WorkersExitedReport,
    WorkersStartedReport,
    WorkersStartingReport,
)
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.live_run import RETRY_SECONDS, RETRY_SECONDS_MAX, LiveRun
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runs import Runs
from tenuto.workers.agent.runtimes.runtime import Runtime
from tenuto.workers.agent.spool import NewReport, Spool

logger = logging.getLogger(__name__)


class RunReports:
    def __init__(
        self, node: AgentNode, runtime: Runtime, runs: Runs, spool: Spool, disk: Disk, spooled: Changed, committed: Changed
    ) -> None:
        self._node, self._runtime, self._runs, self._spool, self._disk = node, runtime, runs, spool, disk
        self._spooled, self._committed = spooled, committed

    def starting(self, assignment: Assignment) -> NewReport:
        report = WorkersStartingReport(
            trial_id=assignment.trial_id, allocation_id=assignment.allocation_id, agent_id=self._node.agent_id
        )
        return _new(report, assignment)

    def started(self, assignment: Assignment) -> NewReport:
        report = WorkersStartedReport(
            trial_id=assignment.trial_id, allocation_id=assignment.allocation_id, agent_id=self._node.agent_id
        )
        return _new(report, assignment)

    async def rendezvous(self, live: LiveRun) -> None:
        """Reports once at which address rank 0's side of a gang over several agents listens. A repetition is harmless."""
        assignment = live.run.assignment
        if len(assignment.slots) < 2 or assignment.slots[0].agent_id != self._node.agent_id or assignment.rendezvous:
            return
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while True:
            try:
                address = await self._runtime.opened_rendezvous(assignment.allocation_id)
                report = RendezvousReport(
                    trial_id=assignment.trial_id,
                    allocation_id=assignment.allocation_id,
                    agent_id=self._node.agent_id,
                    address=address,
                )
                await self._disk(self._spool.append, _new(report, assignment))
                break
            except (OSError, ValueError, sqlite3.Error) as error:  # tried again, because the other ranks wait for it
                logger.warning("allocation %s: where rank 0 listens cannot be reported: %s", assignment.allocation_id, error)
                await asyncio.sleep(backoff.failed())
        self._spooled.notify()

    async def exited(self, live: LiveRun) -> None:
        """Reports the end of a run, after all tracker reports of the run are committed."""
        run = live.run
        assert run.outcome is not None
        report = WorkersExitedReport(
            trial_id=run.assignment.trial_id,
            allocation_id=run.allocation_id,
            agent_id=self._node.agent_id,
            outcome=run.outcome,
            exit_code=run.exit_code,
            error=run.error,
            followed=live.followed or run.cause == "followed",
            cause=run.cause,
        )
        exited = _new(report, run.assignment)
        while True:
            # Taken before the check, so that a commit during it is not missed.
            committed = self._committed.next()
            if await self._disk(self._runs.note_reported, run.allocation_id, exited):
                break
            await committed.wait()
        self._spooled.notify()

    async def committed(self, allocation_id: str) -> None:
        """Returns when the launcher has recorded all reports about the run."""
        while True:
            changed = self._committed.next()
            if await self._disk(self._spool.waiting, "launcher", allocation_id) == 0:
                return
            await changed.wait()


def _new(report: LauncherReport, assignment: Assignment) -> NewReport:
    return NewReport("launcher", report.kind, report.allocation_id, report.to_json(), assignment.trace)
