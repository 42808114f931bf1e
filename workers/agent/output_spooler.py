"""Moves the output of runs into the spool, without their secrets."""

from __future__ import annotations

from dataclasses import replace

from tenuto.kernel.clock import Clock
from tenuto.schemas.reports import LogLine, LogsReport
from tenuto.workers.agent import secret_masks
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.live_run import LiveRun
from tenuto.workers.agent.local_ranks import is_gang, rank_on
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.output import Matcher, kept_reports, log_reports, log_texts, read_ranks
from tenuto.workers.agent.runs import Runs
from tenuto.workers.agent.runtimes.runtime import Runtime
from tenuto.workers.agent.secret_masks import Mask
from tenuto.workers.agent.spool import NewReport, Spool


class OutputSpooler:
    """Spools the output of all runs of one agent. Each run's output is read by one task at a time."""

    def __init__(
        self, node: AgentNode, runtime: Runtime, runs: Runs, spool: Spool, disk: Disk, clock: Clock, spooled: Changed
    ) -> None:
        self._node, self._runtime, self._runs, self._spool, self._disk = node, runtime, runs, spool, disk
        self._clock, self._spooled = clock, spooled

    def hide(self, live: LiveRun) -> Mask:
        if live.hide is None:
            secret = bool(live.run.assignment.config.environment.secrets)
            live.hide = secret_masks.stored_mask(self._node.directory, live.run.allocation_id) if secret else secret_masks.NO_MASK
        return live.hide

    async def drain(self, live: LiveRun) -> None:
        """Reads the rest of the output after the workers are gone, including an unfinished last line."""
        while await self.read(live, final=True):
            pass

    async def read(self, live: LiveRun, *, final: bool) -> bool:
        """Moves new output into the spool; False if there was none."""
        run, before = live.run, (live.run.stdout_offset, live.run.stderr_offset)
        if is_gang(run.assignment) and await self._read_ranks(live, final=final):
            return True
        output = await self._runtime.output(run.allocation_id, None, before, final=final, cut=self.hide(live).cut)
        output = live.bars.hold(output, None, before, self._clock.now_us())
        if output.offsets == before:
            return False
        texts = log_texts(output, self.hide(live))
        rank = rank_on(run.assignment, self._node.agent_id)
        reports = log_reports(run.assignment.trial_id, run.allocation_id, rank, self._clock.now_us(), texts)
        new = self._reports(live, reports, kept_reports(reports, before, output.offsets))
        stdout_offset, stderr_offset = output.offsets
        await self._disk(self._runs.note_logs, run.allocation_id, new, stdout_offset, stderr_offset)
        live.run = replace(live.run, stdout_offset=stdout_offset, stderr_offset=stderr_offset)
        self._spooled.notify()
        return True

    async def tell(self, live: LiveRun, text: str) -> None:
        """Adds a line of the agent's own to the log of a run."""
        run = live.run
        rank = rank_on(run.assignment, self._node.agent_id)
        line = LogLine(time_us=self._clock.now_us(), rank=rank, stream="tenuto", text=text)
        report = LogsReport(trial_id=run.assignment.trial_id, allocation_id=run.allocation_id, lines=(line,))
        await self._disk(
            self._spool.append, NewReport("logs", report.kind, run.allocation_id, report.to_json(), run.assignment.trace)
        )
        self._spooled.notify()

    async def _read_ranks(self, live: LiveRun, *, final: bool) -> bool:
        run = live.run
        if live.rank_offsets is None:
            live.rank_offsets = await self._disk(self._runs.rank_offsets, run.allocation_id)
        offsets, now_us, hide = live.rank_offsets, self._clock.now_us(), self.hide(live)
        found = await read_ranks(
            self._runtime, run.assignment, self._node.agent_id, offsets, now_us, final=final, hide=hide, bars=live.bars
        )
        if not found.offsets:
            return False
        new = self._reports(live, found.reports, found.kept)
        await self._disk(self._runs.note_rank_logs, run.allocation_id, new, found.offsets)
        live.rank_offsets |= found.offsets
        self._spooled.notify()
        return True

    def _reports(self, live: LiveRun, reports: list[LogsReport], kept: list[LogsReport]) -> list[NewReport]:
        """The lines that are kept, and the matches of log policies in all of them; both enter the spool in one transaction."""
        item, trace = live.run.allocation_id, live.run.assignment.trace
        if live.matcher is None:
            live.matcher = Matcher(live.run.assignment, self._node.agent_id)
        new = [NewReport("logs", report.kind, item, report.to_json(), trace) for report in kept]
        return new + [NewReport("tracker", found.kind, item, found.to_json(), trace) for found in live.matcher.found(reports)]
