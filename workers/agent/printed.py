"""Moves what runs print into the spool, without their secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tenuto.kernel.clock import Clock
from tenuto.schemas.reports import LogLine, LogsReport
from tenuto.workers.agent import hiding
from tenuto.workers.agent.changed import Changed
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.environment import Node, is_gang
from tenuto.workers.agent.hiding import Hide
from tenuto.workers.agent.live import Live
from tenuto.workers.agent.output import Matcher, log_reports, read_lines, read_ranks
from tenuto.workers.agent.processes import RunFiles
from tenuto.workers.agent.reconcile import rank_on
from tenuto.workers.agent.runs import Runs
from tenuto.workers.agent.spool import NewReport, Spool


class Printed:
    """Of all runs of one agent. Each run's output is read by one task at a time."""

    def __init__(self, node: Node, runs: Runs, spool: Spool, disk: Disk, clock: Clock, spooled: Changed) -> None:
        self._node, self._runs, self._spool, self._disk = node, runs, spool, disk
        self._clock, self._spooled = clock, spooled

    def hide(self, live: Live) -> Hide:
        if live.hide is None:
            secret = bool(live.run.assignment.config.environment.secrets)
            live.hide = hiding.kept_hiding(self._node.files(live.run.allocation_id)) if secret else hiding.nothing
        return live.hide

    async def drain(self, live: Live) -> None:
        """Its processes are gone: all that is left, an unfinished last line too."""
        while await self.read(live, final=True):
            pass

    async def read(self, live: Live, *, final: bool) -> bool:
        """False: there was nothing."""
        run, files = live.run, self._node.files(live.run.allocation_id)
        if is_gang(run.assignment) and await self._read_ranks(live, files, final=final):
            return True
        hide = self.hide(live)
        out = read_lines(files.stdout, run.stdout_offset, final=final, owner=files.owner, hide=hide)
        err = read_lines(files.stderr, run.stderr_offset, final=final, owner=files.owner, hide=hide)
        if (out.offset, err.offset) == (run.stdout_offset, run.stderr_offset):
            return False
        texts: dict[Literal["stdout", "stderr"], tuple[str, ...]] = {"stdout": out.texts, "stderr": err.texts}
        rank = rank_on(run.assignment, self._node.agent_id)
        reports = log_reports(run.assignment.trial_id, run.allocation_id, rank, self._clock.now_us(), texts)
        new = self._reports(live, reports)
        await self._disk(self._runs.note_logs, run.allocation_id, new, out.offset, err.offset)
        live.run = replace(live.run, stdout_offset=out.offset, stderr_offset=err.offset)
        self._spooled.notify()
        return True

    async def tell(self, live: Live, text: str) -> None:
        """A line of the agent's own in the log of a run."""
        run = live.run
        rank = rank_on(run.assignment, self._node.agent_id)
        line = LogLine(time_us=self._clock.now_us(), rank=rank, stream="tenuto", text=text)
        report = LogsReport(trial_id=run.assignment.trial_id, allocation_id=run.allocation_id, lines=(line,))
        await self._disk(
            self._spool.append, NewReport("logs", report.kind, run.allocation_id, report.to_json(), run.assignment.trace)
        )
        self._spooled.notify()

    async def _read_ranks(self, live: Live, files: RunFiles, *, final: bool) -> bool:
        run = live.run
        if live.rank_offsets is None:
            live.rank_offsets = await self._disk(self._runs.rank_offsets, run.allocation_id)
        offsets, now_us, hide = live.rank_offsets, self._clock.now_us(), self.hide(live)
        found = read_ranks(run.assignment, self._node.agent_id, files, offsets, now_us, final=final, hide=hide)
        if not found.offsets:
            return False
        new = self._reports(live, found.reports)
        await self._disk(self._runs.note_rank_logs, run.allocation_id, new, found.offsets)
        live.rank_offsets |= found.offsets
        self._spooled.notify()
        return True

    def _reports(self, live: Live, reports: list[LogsReport]) -> list[NewReport]:
        """The lines, and what follows from them: both go into the spool at once."""
        item, trace = live.run.allocation_id, live.run.assignment.trace
        if live.matcher is None:
            live.matcher = Matcher(live.run.assignment, self._node.agent_id)
        new = [NewReport("logs", report.kind, item, report.to_json(), trace) for report in reports]
        return new + [NewReport("tracker", found.kind, item, found.to_json(), trace) for found in live.matcher.found(reports)]
