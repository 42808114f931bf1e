"""Carries each run from its assignment to the record of its end.

Long, because the phases of one run's life are read together: each is on disk before the next begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tenuto.kernel.backoff import Backoff
from tenuto.kernel.clock import Clock
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.assignments import Action, Assignment, Assignments
from tenuto.schemas.reports import (
    LauncherReport,
    LogsReport,
    RendezvousReport,
    WorkersExitedReport,
    WorkersStartedReport,
    WorkersStartingReport,
)
from tenuto.workers.agent import hiding, processes
from tenuto.workers.agent.changed import Changed
from tenuto.workers.agent.contexts import Contexts, ContextUnavailable
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.environment import SUPERVISOR_COMMAND, Node, is_gang, worker_environment
from tenuto.workers.agent.gangs import opened_rendezvous, place_rendezvous
from tenuto.workers.agent.hiding import Hide
from tenuto.workers.agent.outcome import End, name_end
from tenuto.workers.agent.output import Matcher, Offsets, log_reports, read_lines, read_ranks
from tenuto.workers.agent.processes import Identity, RunFiles
from tenuto.workers.agent.reconcile import (
    Direct,
    Kill,
    Refuse,
    Start,
    Step,
    rank_on,
    reconcile,
    slots_on,
)
from tenuto.workers.agent.report_tokens import ReportTokens
from tenuto.workers.agent.runs import Run, Runs
from tenuto.workers.agent.scratch import PASSING, Scratch
from tenuto.workers.agent.spool import NewReport, Spool
from tenuto.workers.agent.warm import WarmPool, WarmSpawned

logger = logging.getLogger(__name__)

OUTPUT_SECONDS = 0.5
"""How often a run's output is read: soon enough for people who watch, and one disk write for all that was printed."""
TOKEN_BYTES = 32
RETRY_SECONDS = 1.0
"""Before a run is carried on after an unexpected error, such as a full disk; doubles each time, up to RETRY_SECONDS_MAX."""
RETRY_SECONDS_MAX = 30.0
SECRETS_SECONDS = 1.0
"""Between looks whether a run that waits for its secrets was killed."""


@dataclass
class Live:
    """A run that is not done, in memory."""

    run: Run
    changed: Changed = field(default_factory=Changed)
    """Its directive changed, or it ended."""
    grace: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    followed: bool = False
    """It ended only because other parts of its gang did. Forgotten by an agent that is started again: another part tells why."""
    matcher: Matcher | None = None
    """Of what it prints. An agent that is started again makes it anew: a match may be reported twice, which changes nothing."""
    rank_offsets: dict[int, Offsets] | None = None
    """Of a gang: what of each rank's output is in the spool. None: not read yet."""
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX))
    """Of errors while it was carried on."""
    hide: Hide | None = None
    """Puts marks in place of its secrets. None: not read yet."""
    warm: WarmSpawned | None = None
    """Its processes, if this agent started them warm: they say when they end."""


class Manager:
    """All runs of one agent. Its methods may be called concurrently."""

    def __init__(
        self,
        node: Node,
        runs: Runs,
        spool: Spool,
        disk: Disk,
        contexts: Contexts,
        clock: Clock,
        *,
        grace_seconds: float,
        command: Sequence[str],
        warm: WarmPool,
        tokens: ReportTokens,
    ) -> None:
        self.node, self.tokens = node, tokens
        self.spooled = Changed()
        """Reports were added to the spool."""
        self.committed = Changed()
        """Reports left the spool."""
        self._runs, self._spool, self._disk, self._contexts, self._clock = runs, spool, disk, contexts, clock
        self._grace_seconds, self._command, self._warm = grace_seconds, tuple(command), warm
        self.scratch = Scratch(node.directory, node.base, node.account)
        self._live: dict[str, Live] = {}
        self._done: dict[str, Run] = {}
        self._assigned: tuple[Assignment, ...] | None = None
        """None until the launcher has said: an agent that was just started again must not kill what it found."""
        self._position = 0
        self._secrets: dict[str, str] = {}
        """Values by reference, as the launcher said them last; in memory only."""
        self._told = Changed()
        self._reconciling = asyncio.Lock()
        self._stopping = False

    async def open(self) -> None:
        """Finds the workers of an earlier agent on this directory, and kills those that nobody can own."""
        for run in await self._disk(self._runs.all):
            if run.phase == "done":
                self._done[run.allocation_id] = run
            else:
                self._live[run.allocation_id] = Live(run)
        for pid, allocation_id in (await asyncio.to_thread(processes.marked, self.node.directory)).items():
            live = self._live.get(allocation_id)
            if live is None or not live.run.holds_slots:
                logger.warning("killing process %d: allocation %s is not this agent's any more", pid, allocation_id)
                if not processes.is_cleaner(pid):  # it leaves after the others
                    processes.kill_process(pid)
        await asyncio.to_thread(self.scratch.sweep, set(self._live))
        for live in self._live.values():
            if live.run.phase == "running":
                logger.info("found the workers of allocation %s again", live.run.allocation_id)
            self._set_grace(live)
            self._carry(live)
        if not self.tokens.lacks(self._live):
            self.tokens.complete.set()

    @property
    def allocations(self) -> tuple[str, ...]:
        """For heartbeats: all whose end is not yet in the record."""
        return tuple(sorted(self._live))

    def live(self, allocation_id: str) -> Live | None:
        """A run whose processes may speak: starting or running."""
        live = self._live.get(allocation_id)
        return live if live is not None and live.run.holds_slots else None

    def context_path(self, assignment: Assignment) -> Path:
        return self._contexts.path(assignment.context_hash)

    async def assign(self, assignments: Assignments) -> str:
        """Makes it so. Returns why not, or an empty string: then all is on disk."""
        if self._stopping:
            return "the agent is stopping"
        if assignments.position < self._position:
            return "an older assignment than the last"
        self._position = assignments.position
        self._assigned = assignments.assignments
        if new := self.tokens.new(assignments.tokens):
            await self._disk(self.tokens.note, new)
        self.tokens.complete.set()  # what the launcher does not know by now, it will not tell
        self._secrets = dict(assignments.secrets)
        self._told.notify()
        await self._reconcile()
        return ""

    async def stop(self, grace_seconds: float) -> None:
        """Asks all workers to save and leave, kills those that do not, and returns when none is left."""
        self._stopping = True
        holding = [live for live in self._live.values() if live.run.holds_slots]
        for live in holding:
            if live.run.assignment.action == "run":
                await self._direct(live, live.run.assignment.model_copy(update={"action": "preempt"}))
        try:
            async with asyncio.timeout(grace_seconds):
                await self._wait_ended(holding)
        except TimeoutError:
            for live in holding:
                await self._kill(live, live.run.assignment.action)
            await self._wait_ended(holding)

    async def abandon(self) -> None:
        """Kills all workers without writing anything down: the agent's disk is gone, and its lease tells the rest."""
        self._stopping = True
        for live in self._live.values():
            if (identity := _identity(live.run)) is not None:
                processes.kill(identity)
            await processes.kill_rest(self.node.directory, live.run.allocation_id)

    async def close(self) -> None:
        """Lets go of the runs; their processes go on."""
        self._stopping = True
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for live in self._live.values():
            if live.grace is not None:
                live.grace.cancel()
        await asyncio.gather(*map(stop_task, tasks))

    async def _wait_ended(self, lives: Iterable[Live]) -> None:
        for live in lives:
            while live.run.holds_slots:
                await live.changed.next().wait()

    async def _reconcile(self) -> None:
        async with self._reconciling:
            if self._assigned is None or self._stopping:
                return
            known = [*(live.run for live in self._live.values()), *self._done.values()]
            for step in reconcile(self.node.agent_id, known, self._assigned):
                await self._take(step)

    async def _take(self, step: Step) -> None:
        match step:
            case Kill(allocation_id, action):
                await self._kill(self._live[allocation_id], action)
            case Direct(assignment):
                await self._direct(self._live[assignment.allocation_id], assignment)
            case Refuse(assignment, outcome):
                await self._refuse(assignment, End(outcome, None, "it was told to leave before it started"))
            case Start(assignment):
                await self._begin(assignment)

    async def _begin(self, assignment: Assignment) -> None:
        offered = {slot.slot_id for slot in self.node.slots}
        missing = [slot_id for slot_id in slots_on(assignment, self.node.agent_id) if slot_id not in offered]
        if missing:
            await self._refuse(assignment, End("lost", None, f"agent {self.node.agent_id} has no slot {missing[0]}"))
            return
        report = WorkersStartingReport(
            trial_id=assignment.trial_id, allocation_id=assignment.allocation_id, agent_id=self.node.agent_id
        )
        live = await self._add(assignment, _new(report, assignment))
        self._carry(live)

    async def _refuse(self, assignment: Assignment, end: End) -> None:
        live = await self._add(assignment, None)
        await self._note_end(live, end)
        self._carry(live)

    async def _add(self, assignment: Assignment, starting: NewReport | None) -> Live:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        live = Live(await self._disk(self._runs.add, assignment, token, starting))
        self._live[assignment.allocation_id] = live
        self.spooled.notify()
        return live

    async def _direct(self, live: Live, assignment: Assignment) -> None:
        await self._disk(self._runs.note_assignment, assignment)
        live.run = replace(live.run, assignment=assignment)
        place_rendezvous(assignment, self.node)
        self._set_grace(live)
        live.changed.notify()

    def _set_grace(self, live: Live) -> None:
        """A worker that was told to leave gets so long; told to go on after all, it is left alone."""
        leaving = live.run.assignment.action != "run" and live.run.holds_slots
        if leaving and live.grace is None:
            loop = asyncio.get_running_loop()
            live.grace = loop.call_later(self._grace_seconds, lambda: loop.create_task(self._grace_over(live)))
        elif not leaving and live.grace is not None:
            live.grace.cancel()
            live.grace = None

    async def _grace_over(self, live: Live) -> None:
        if live.run.holds_slots and live.run.assignment.action != "run":
            await self._kill(live, live.run.assignment.action)

    async def _kill(self, live: Live, action: Action) -> None:
        if not live.run.holds_slots:
            return
        if live.run.killed_for is None:
            # On disk first: whoever finds the processes gone must know why.
            await self._disk(self._runs.note_kill, live.run.allocation_id, action)
            live.run = replace(live.run, killed_for=action)
            logger.info("killing the workers of allocation %s (%s)", live.run.allocation_id, action)
        if (identity := _identity(live.run)) is not None:
            processes.kill(identity)

    def _carry(self, live: Live) -> None:
        live.task = asyncio.create_task(self._carry_on(live), name=f"run-{live.run.allocation_id}")
        live.task.add_done_callback(lambda task: self._carried(live, task))

    def _carried(self, live: Live, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            pause = live.backoff.failed()
            defect = None if isinstance(error, OSError | sqlite3.Error) else error  # a full disk says enough in one line
            logger.error("allocation %s: %s; trying again in %.0f s", live.run.allocation_id, error, pause, exc_info=defect)
            asyncio.get_running_loop().call_later(pause, lambda: None if self._stopping else self._carry(live))
        else:
            live.backoff.worked()

    async def _carry_on(self, live: Live) -> None:
        """From whatever phase the run is in. Each phase is on disk before the next begins, so an agent can end anywhere."""
        if live.run.phase == "starting":
            await self._start(live)
        if live.run.phase == "running":
            await self._watch(live)
        await self._reconcile()  # its slots may be what another one waits for
        if live.run.phase == "ended":
            await self._drain_output(live)
            await self._report_exit(live)
        if live.run.phase == "reported":
            hiding.forget(self.node.files(live.run.allocation_id))
            await asyncio.to_thread(self.scratch.remove, live.run.allocation_id)  # gigabytes perhaps: its slots are free by now
            await self._wait_committed(live)
            await self._forget(live)

    async def _start(self, live: Live) -> None:
        run = live.run
        try:
            context = await self._contexts.unpack(run.assignment.context_hash)
        except ContextUnavailable as error:
            await self._note_end(live, End("lost", None, str(error)))
            return
        values = await self._secret_values(live)
        if live.run.killed_for is not None:
            await self._note_end(live, name_end(None, live.run.killed_for, self.node.files(run.allocation_id)))
            return
        files = self.node.files(run.allocation_id)
        try:
            environment = worker_environment(self.node, run, self._make_directories(files, run.allocation_id), values)
            if values:
                hiding.keep(files, values)
            place_rendezvous(live.run.assignment, self.node)  # which may have come since `run` was read
            command = SUPERVISOR_COMMAND if is_gang(run.assignment) else self._command
            entrypoint = run.assignment.config.entrypoint
            # A process that others are forked from must not hold them.
            warm = None if values else await self._warm.spawn(files, environment, context, entrypoint)
            spawned = warm or processes.spawn(command, files, environment, context, self.node.account)
        except OSError as error:
            await self._note_end(live, End("lost", None, f"the worker process could not be started: {error}"))
            return
        identity = spawned.identity
        report = WorkersStartedReport(
            trial_id=run.assignment.trial_id, allocation_id=run.allocation_id, agent_id=self.node.agent_id
        )
        started = _new(report, run.assignment)
        try:
            await self._disk(self._runs.note_process, run.allocation_id, identity.pid, identity.started, started)
        except BaseException:
            spawned.abandon()
            raise
        live.run = replace(live.run, phase="running", pid=identity.pid, process_started=identity.started)
        spawned.go()
        live.warm = spawned if isinstance(spawned, WarmSpawned) else None
        if live.run.killed_for is not None:
            processes.kill(identity)
        self.spooled.notify()

    def _make_directories(self, files: RunFiles, allocation_id: str) -> Path:
        """Of a run that has not started. Returns its temporary one. The run's own is given away last: until then no other account
        can put anything into it. Raises OSError."""
        shutil.rmtree(files.directory, ignore_errors=True)
        files.directory.mkdir(mode=0o700, parents=True)
        temporary = self.scratch.make(allocation_id)
        if self.node.account is not None:
            files.directory.parent.chmod(PASSING)
            self.node.account.own(files.directory, 0o700)
        return temporary

    async def _watch(self, live: Live) -> None:
        identity = _identity(live.run)
        assert identity is not None
        gone = asyncio.create_task(_gone(identity, live.warm))
        opened = asyncio.create_task(self._report_rendezvous(live))
        try:
            while not gone.done():
                await self._read_output(live, final=False)
                await asyncio.wait({gone}, timeout=OUTPUT_SECONDS)
        finally:
            gone.cancel()
            opened.cancel()
        left_nothing = live.warm is not None and live.warm.left_nothing
        if not left_nothing and not await processes.kill_rest(self.node.directory, live.run.allocation_id):
            raise RuntimeError("its processes cannot be killed; their slots stay taken")
        files = self.node.files(live.run.allocation_id)
        await self._note_end(live, name_end(processes.read_exit_code(files), live.run.killed_for, files))

    async def _report_rendezvous(self, live: Live) -> None:
        """Rank 0's side of a gang over several agents says once where it listens. Twice does no harm."""
        assignment = live.run.assignment
        if len(assignment.slots) < 2 or assignment.slots[0].agent_id != self.node.agent_id or assignment.rendezvous:
            return
        address = await opened_rendezvous(self.node.files(live.run.allocation_id))
        report = RendezvousReport(
            trial_id=assignment.trial_id, allocation_id=assignment.allocation_id, agent_id=self.node.agent_id, address=address
        )
        await self._disk(self._spool.append, _new(report, assignment))
        self.spooled.notify()

    async def _secret_values(self, live: Live) -> dict[str, str]:
        """By variable. Waits for those that the launcher did not say yet, unless the run is killed."""
        wanted = live.run.assignment.config.environment.secrets
        warned = False
        while (missing := sorted(set(wanted.values()) - self._secrets.keys())) and live.run.killed_for is None:
            if not warned:
                logger.info("allocation %s waits for the secrets %s", live.run.allocation_id, ", ".join(missing))
            warned = True
            told = self._told.next()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECRETS_SECONDS):
                    await told.wait()
        return {} if missing else {variable: self._secrets[reference] for variable, reference in wanted.items()}

    def _hide(self, live: Live) -> Hide:
        if live.hide is None:
            secret = bool(live.run.assignment.config.environment.secrets)
            live.hide = hiding.hiding(hiding.kept(self.node.files(live.run.allocation_id))) if secret else hiding.nothing
        return live.hide

    async def _note_end(self, live: Live, end: End) -> None:
        if end.error is not None:
            end = replace(end, error=self._hide(live)(end.error))
        await self._disk(self._runs.note_end, live.run.allocation_id, end.outcome, end.exit_code, end.error)
        live.followed = end.followed
        live.run = replace(live.run, phase="ended", outcome=end.outcome, exit_code=end.exit_code, error=end.error)
        if live.grace is not None:
            live.grace.cancel()
        live.changed.notify()
        logger.info("allocation %s ended: %s (exit code %s)", live.run.allocation_id, end.outcome, end.exit_code)

    async def _drain_output(self, live: Live) -> None:
        while await self._read_output(live, final=True):
            pass

    async def _read_output(self, live: Live, *, final: bool) -> bool:
        """Moves what was printed into the spool; False: there was nothing."""
        run, files = live.run, self.node.files(live.run.allocation_id)
        if is_gang(run.assignment) and await self._read_ranks(live, files, final=final):
            return True
        hide = self._hide(live)
        out = read_lines(files.stdout, run.stdout_offset, final=final, owner=files.owner, hide=hide)
        err = read_lines(files.stderr, run.stderr_offset, final=final, owner=files.owner, hide=hide)
        if (out.offset, err.offset) == (run.stdout_offset, run.stderr_offset):
            return False
        texts: dict[Literal["stdout", "stderr"], tuple[str, ...]] = {"stdout": out.texts, "stderr": err.texts}
        rank = rank_on(run.assignment, self.node.agent_id)
        reports = log_reports(run.assignment.trial_id, run.allocation_id, rank, self._clock.now_us(), texts)
        new = self._new_logs(live, reports)
        await self._disk(self._runs.note_logs, run.allocation_id, new, out.offset, err.offset)
        live.run = replace(live.run, stdout_offset=out.offset, stderr_offset=err.offset)
        self.spooled.notify()
        return True

    async def _read_ranks(self, live: Live, files: RunFiles, *, final: bool) -> bool:
        run = live.run
        if live.rank_offsets is None:
            live.rank_offsets = await self._disk(self._runs.rank_offsets, run.allocation_id)
        offsets, now_us, hide = live.rank_offsets, self._clock.now_us(), self._hide(live)
        found = read_ranks(run.assignment, self.node.agent_id, files, offsets, now_us, final=final, hide=hide)
        if not found.offsets:
            return False
        new = self._new_logs(live, found.reports)
        await self._disk(self._runs.note_rank_logs, run.allocation_id, new, found.offsets)
        live.rank_offsets |= found.offsets
        self.spooled.notify()
        return True

    def _new_logs(self, live: Live, reports: list[LogsReport]) -> list[NewReport]:
        """The lines, and what follows from them: both go into the spool at once."""
        item, trace = live.run.allocation_id, live.run.assignment.trace
        if live.matcher is None:
            live.matcher = Matcher(live.run.assignment, self.node.agent_id)
        new = [NewReport("logs", report.kind, item, report.to_json(), trace) for report in reports]
        return new + [NewReport("tracker", found.kind, item, found.to_json(), trace) for found in live.matcher.found(reports)]

    async def _wait_committed(self, live: Live) -> None:
        while True:
            changed = self.committed.next()
            if await self._disk(self._spool.waiting, "launcher", live.run.allocation_id) == 0:
                return
            await changed.wait()

    async def _report_exit(self, live: Live) -> None:
        """After all that the tracker is told of the run is committed: a report after the exit would be refused."""
        run = live.run
        assert run.outcome is not None
        report = WorkersExitedReport(
            trial_id=run.assignment.trial_id,
            allocation_id=run.allocation_id,
            agent_id=self.node.agent_id,
            outcome=run.outcome,
            exit_code=run.exit_code,
            error=run.error,
            followed=live.followed,
        )
        exited = _new(report, run.assignment)
        while True:
            committed = self.committed.next()
            if await self._disk(self._runs.note_reported, run.allocation_id, exited):
                break
            await committed.wait()
        live.run = replace(run, phase="reported")
        self.spooled.notify()

    async def _forget(self, live: Live) -> None:
        allocation_id = live.run.allocation_id
        forgotten = await self._disk(self._runs.note_done, allocation_id)
        await self._disk(self.tokens.forget, forgotten)
        for old in forgotten:
            self._done.pop(old, None)
        self._done[allocation_id] = replace(live.run, phase="done")
        del self._live[allocation_id]
        await asyncio.to_thread(shutil.rmtree, self.node.files(allocation_id).directory, True)
        in_use = [other.run.assignment.context_hash for other in self._live.values()]
        await asyncio.to_thread(self._contexts.prune, in_use)


async def _gone(identity: Identity, warm: WarmSpawned | None) -> None:
    if warm is None or not await warm.wait_ended():
        await processes.wait_gone(identity)


def _identity(run: Run) -> Identity | None:
    if run.pid is None or run.process_started is None:
        return None
    return Identity(run.pid, run.process_started)


def _new(report: LauncherReport, assignment: Assignment) -> NewReport:
    return NewReport("launcher", report.kind, report.allocation_id, report.to_json(), assignment.trace)
