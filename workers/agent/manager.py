"""The manager carries each run from its assignment to the record of its end. Each phase of a run is on disk before the next
begins.

Long, because the phases of a run are one story, told in the order in which they happen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.assignments import Action, Assignment, Assignments
from tenuto.workers.agent import secret_masks
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.contexts import Contexts
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.gangs import place_rendezvous
from tenuto.workers.agent.live_run import RETRY_SECONDS, RETRY_SECONDS_MAX, LiveRun
from tenuto.workers.agent.local_ranks import slots_on
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.outcome import End, name_end
from tenuto.workers.agent.output_spooler import OutputSpooler
from tenuto.workers.agent.reconcile import Direct, Kill, Refuse, Start, Step, reconcile
from tenuto.workers.agent.report_tokens import TokenStore
from tenuto.workers.agent.run_reports import RunReports
from tenuto.workers.agent.runs import RunRecord, Runs
from tenuto.workers.agent.runtimes.runtime import Runtime
from tenuto.workers.agent.spool import NewReport, Spool
from tenuto.workers.agent.starting import RunStarter
from tenuto.workers.endings import Ending

logger = logging.getLogger(__name__)

OUTPUT_SECONDS = 0.5
"""Pause between reads of a run's output: soon enough for people who watch, and one disk write for all new lines."""
TOKEN_BYTES = 32
KILLED_SECONDS_MAX = 5.0
"""Longest wait, when the agent stops, for the ends of killed workers to be seen and stored: usually a fraction of a second,
unless the disk is full. The next agent on this directory finds the others."""


class Manager:
    """All runs of one agent. Its methods may be called concurrently."""

    def __init__(
        self,
        node: AgentNode,
        runtime: Runtime,
        runs: Runs,
        spool: Spool,
        disk: Disk,
        contexts: Contexts,
        clock: Clock,
        *,
        grace_seconds: float,
        tokens: TokenStore,
    ) -> None:
        self.node, self.tokens = node, tokens
        self.spooled = Changed()
        """Signal that reports were added to the spool."""
        self.committed = Changed()
        """Signal that reports left the spool."""
        self._runtime, self._runs, self._disk, self._contexts, self._grace_seconds = runtime, runs, disk, contexts, grace_seconds
        self._printed = OutputSpooler(node, runtime, runs, spool, disk, clock, self.spooled)
        self._starter = RunStarter(node, runtime, contexts, self._printed.tell)
        self._reports = RunReports(node, runtime, runs, spool, disk, self.spooled, self.committed)
        self._live: dict[str, LiveRun] = {}
        self._done: dict[str, RunRecord] = {}
        self._cluster = ""
        """Cluster that the directory belongs to. Empty: not known yet."""
        self._assigned: tuple[Assignment, ...] | None = None
        """Assignments of the launcher. None until the first message: a restarted agent must not kill the workers that it
        found."""
        self._position = 0
        self._reconciling = asyncio.Lock()
        self._seldom = Seldom(logger)
        self._stopping = False
        """True: no run begins; present runs go on to their ends."""
        self._let_go = False
        """True: the runs were released; none is carried on."""

    async def open(self) -> None:
        """Finds the workers of an earlier agent on this directory, and kills those that belong to no run."""
        self._cluster = await self._disk(self._runs.cluster)
        for run in await self._disk(self._runs.all):
            if run.phase == "done":
                self._done[run.allocation_id] = run
            else:
                self._live[run.allocation_id] = LiveRun(run)
        for allocation_id, handles in (await self._runtime.find()).items():
            if (found := self._live.get(allocation_id)) is None or not found.run.holds_slots:
                logger.warning("killing the processes of allocation %s, which this agent no longer has", allocation_id)
                for handle in handles:
                    with contextlib.suppress(OSError):  # the sweep below tries, too
                        await self._runtime.kill(handle)
        await self._runtime.sweep(set(self._live))
        await asyncio.to_thread(secret_masks.sweep, self.node.directory, set(self._live))
        for live in self._live.values():
            if live.run.phase == "running":
                logger.info("found the workers of allocation %s again", live.run.allocation_id)
            self._set_grace(live)
            self._carry(live)
        if not self.tokens.lacks(self._live):
            self.tokens.complete.set()

    @property
    def allocations(self) -> tuple[str, ...]:
        """Allocations for heartbeats: all whose end is not in the record yet."""
        return tuple(sorted(self._live))

    def live(self, allocation_id: str) -> LiveRun | None:
        """A run whose workers may report: starting or running. None: there is no such run."""
        live = self._live.get(allocation_id)
        return live if live is not None and live.run.holds_slots else None

    async def note_told(self, live: LiveRun, ending: Ending) -> None:
        """Notes the ending that a worker announces; the first one counts. It is on disk when this returns."""
        if live.run.told is None:
            self._runtime.note_told(live.run.allocation_id, ending)
            await self._disk(self._runs.note_told, live.run.allocation_id, ending)
            if live.run.told is None:  # as on disk, where two calls came in this order
                live.run = replace(live.run, told=ending)

    def context_path(self, assignment: Assignment) -> Path:
        return self._contexts.path(assignment.context_hash)

    async def join(self, cluster: str, *, reports_wait: bool) -> str:
        """Notes the cluster that assigns. Each counts its allocations from 1, so a run of another cluster could be mistaken for
        one of this cluster: done runs of another are forgotten. Returns the reason if some are not done, else an empty string."""
        if cluster == self._cluster:
            return ""
        other = self._cluster != ""
        if other and (self._live or reports_wait):
            return (
                f"{self.node.directory} has runs or reports of another cluster that are not done: set TENUTO_AGENT_DIRECTORY to "
                "another directory, or remove this one if that cluster is gone."
            )
        await self._disk(self._runs.join, cluster, forget=other)
        if other:
            logger.warning("the directory was another cluster's, whose runs are done; they are forgotten")
            self.tokens.forget_all()
            self._done.clear()
        self._cluster = cluster
        return ""

    async def assign(self, assignments: Assignments) -> str:
        """Makes the agent run these assignments. Returns the reason if it cannot, or an empty string once all is on disk."""
        if self._stopping:
            return "the agent is stopping"
        # The launcher answers heartbeats and sends assignments on its own, so an older message may overtake a newer one.
        if assignments.position < self._position:
            return "an older assignment than the last"
        self._position = assignments.position
        self._assigned = assignments.assignments
        if new := self.tokens.new(assignments.tokens):
            await self._disk(self.tokens.note, new)
        self.tokens.complete.set()  # tokens that this message lacks will not come later
        self._starter.tell_secrets(assignments.secrets)
        await self._reconcile()
        return ""

    async def stop(self, grace_seconds: float) -> None:
        """Asks all workers to save and leave, kills those that do not, and returns when none is left."""
        self._stopping = True
        holding = [live for live in self._live.values() if live.run.holds_slots]
        for live in self._live.values():
            if live.pause is not None:
                live.pause.cancel()
                self._carry(live)
        for live in holding:
            if live.run.assignment.action == "run":
                await self._direct(live, live.run.assignment.model_copy(update={"action": "preempt"}))
        try:
            async with asyncio.timeout(grace_seconds):
                await self._wait_ended(holding)
        except TimeoutError:
            for live in holding:
                await self._kill(live, live.run.assignment.action)
            try:
                async with asyncio.timeout(KILLED_SECONDS_MAX):
                    await self._wait_ended(holding)
            except TimeoutError:
                logger.warning("the ends of workers cannot be stored, so they are killed without a record")
                await self.abandon()

    async def abandon(self) -> None:
        """Kills all workers without writing anything: the agent's disk is lost, and the launcher notices by its lease."""
        self._stopping = self._let_go = True
        for live in [*self._live.values()]:  # a copy: runs may end and be removed during the loop
            try:
                if live.run.handle is not None:
                    await self._runtime.kill(live.run.handle)
                await self._runtime.kill_all(live.run.allocation_id)
            except OSError as error:
                logger.error("the workers of allocation %s cannot be killed: %s", live.run.allocation_id, error)

    async def close(self) -> None:
        """Releases the runs; their workers go on."""
        self._stopping = self._let_go = True
        tasks = [task for live in self._live.values() for task in (live.task, live.ending) if task is not None]
        for live in self._live.values():
            if live.grace is not None:
                live.grace.cancel()
        await asyncio.gather(*map(stop_task, tasks))

    async def _wait_ended(self, lives: Iterable[LiveRun]) -> None:
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
                try:
                    await self._kill(self._live[allocation_id], action)
                except OSError as error:  # unreachable Docker daemon: other runs go on, and each heartbeat's answer repeats this
                    self._seldom.warn(f"the workers of allocation {allocation_id} cannot be killed yet: {error}")
            case Direct(assignment):
                await self._direct(self._live[assignment.allocation_id], assignment)
            case Refuse(assignment, outcome):
                await self._refuse(assignment, End(outcome, None, "it was told to leave before it started"))
            case Start(assignment):
                await self._begin(assignment)

    async def _begin(self, assignment: Assignment) -> None:
        offered = {slot.slot_id for slot in self._runtime.slots}
        missing = [slot_id for slot_id in slots_on(assignment, self.node.agent_id) if slot_id not in offered]
        if missing:
            await self._refuse(assignment, End("lost", None, f"agent {self.node.agent_id} has no slot {missing[0]}"))
            return
        live = await self._add(assignment, self._reports.starting(assignment))
        self._carry(live)

    async def _refuse(self, assignment: Assignment, end: End) -> None:
        live = await self._add(assignment, None)
        await self._note_end(live, end)
        self._carry(live)

    async def _add(self, assignment: Assignment, starting: NewReport | None) -> LiveRun:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        live = LiveRun(await self._disk(self._runs.add, assignment, token, starting))
        self._live[assignment.allocation_id] = live
        self.spooled.notify()
        return live

    async def _direct(self, live: LiveRun, assignment: Assignment) -> None:
        await self._disk(self._runs.note_assignment, assignment)
        live.run = replace(live.run, assignment=assignment)
        await place_rendezvous(assignment, self.node.agent_id, self._runtime)
        self._set_grace(live)
        live.changed.notify()

    def _set_grace(self, live: LiveRun) -> None:
        """Starts the grace period of workers that were told to leave; cancels it if they are told to go on after all."""
        leaving = live.run.assignment.action != "run" and live.run.holds_slots
        if leaving and live.grace is None:
            live.grace = asyncio.get_running_loop().call_later(self._grace_seconds, self._grace_over, live)
        elif not leaving and live.grace is not None:
            live.grace.cancel()
            live.grace = None

    def _grace_over(self, live: LiveRun) -> None:
        live.ending = asyncio.create_task(self._end(live), name=f"end-{live.run.allocation_id}")

    async def _end(self, live: LiveRun) -> None:
        """Kills workers that did not leave in time, however often the disk refuses to store that first."""
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while live.run.holds_slots and live.run.assignment.action != "run":
            try:
                await self._kill(live, live.run.assignment.action)
                return
            except (OSError, sqlite3.Error) as error:
                pause = backoff.failed()
                logger.error("allocation %s cannot be ended: %s; trying again in %.0f s", live.run.allocation_id, error, pause)
                await asyncio.sleep(pause)

    async def _kill(self, live: LiveRun, action: Action) -> None:
        if not live.run.holds_slots:
            return
        if live.run.killed_for is None:
            # On disk first, so that an agent that finds the workers gone knows why.
            await self._disk(self._runs.note_kill, live.run.allocation_id, action)
            live.run = replace(live.run, killed_for=action)
            logger.info("killing the workers of allocation %s (%s)", live.run.allocation_id, action)
        if live.run.handle is not None:
            await self._runtime.kill(live.run.handle)

    def _carry(self, live: LiveRun) -> None:
        live.pause = None
        if self._let_go:
            return
        live.task = asyncio.create_task(self._carry_on(live), name=f"run-{live.run.allocation_id}")
        live.task.add_done_callback(lambda task: self._carried(live, task))

    def _carried(self, live: LiveRun, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            pause = min(live.backoff.failed(), RETRY_SECONDS if self._stopping else RETRY_SECONDS_MAX)
            defect = None if isinstance(error, OSError | sqlite3.Error) else error  # for a full disk, one line is enough
            logger.error("allocation %s: %s; trying again in %.0f s", live.run.allocation_id, error, pause, exc_info=defect)
            live.pause = asyncio.get_running_loop().call_later(pause, self._carry, live)
        else:
            live.backoff.worked()

    async def _carry_on(self, live: LiveRun) -> None:
        """Carries a run on from its present phase. Each phase is on disk before the next begins, so an agent can end at any
        point."""
        if live.run.phase == "starting":
            await self._start(live)
        if live.run.phase == "running":
            await self._watch(live)
        await self._reconcile()  # another run may wait for its slots
        if live.run.phase == "ended":
            await self._printed.drain(live)
            await self._reports.exited(live)
            live.run = replace(live.run, phase="reported")
        if live.run.phase == "reported":
            secret_masks.remove(self.node.directory, live.run.allocation_id)
            await self._runtime.clean(live.run.allocation_id)  # may take long (gigabytes), so only after the slots are free
            await self._reports.committed(live.run.allocation_id)
            await self._forget(live)

    async def _start(self, live: LiveRun) -> None:
        run = live.run
        handle = await self._starter.start(live)
        if isinstance(handle, End):
            await self._note_end(live, handle)
            return
        try:
            # Before `go`, so that an agent that dies in between still finds the worker.
            await self._disk(self._runs.note_handle, run.allocation_id, handle, self._reports.started(run.assignment))
        except BaseException:
            await self._runtime.abandon(handle)
            raise
        live.run = replace(live.run, phase="running", handle=handle)
        await self._runtime.go(handle)
        # A kill that came before the handle was known had nothing to kill.
        if live.run.killed_for is not None:
            await self._runtime.kill(handle)
        self.spooled.notify()

    async def _watch(self, live: LiveRun) -> None:
        allocation_id, handle = live.run.allocation_id, live.run.handle
        assert handle is not None
        gone = asyncio.create_task(self._runtime.wait(allocation_id, handle), name=f"wait-{allocation_id}")
        opened = asyncio.create_task(self._reports.rendezvous(live))
        try:
            while not gone.done():
                if await self._printed.read(live, final=False):
                    live.backoff.worked()  # the disk accepts its output again
                await asyncio.wait({gone}, timeout=OUTPUT_SECONDS)
        finally:
            gone.cancel()
            opened.cancel()
        await self._note_end(live, name_end(gone.result(), live.run.told, live.run.killed_for, self._printed.hide(live)))

    async def _note_end(self, live: LiveRun, end: End) -> None:
        if end.error is not None:
            end = replace(end, error=self._printed.hide(live)(end.error))
        await self._disk(self._runs.note_end, live.run.allocation_id, end.outcome, end.exit_code, end.error, end.cause)
        live.followed = end.followed
        live.run = replace(
            live.run, phase="ended", outcome=end.outcome, exit_code=end.exit_code, error=end.error, cause=end.cause
        )
        if live.grace is not None:
            live.grace.cancel()
        live.changed.notify()
        logger.info("allocation %s ended: %s (exit code %s)", live.run.allocation_id, end.outcome, end.exit_code)

    async def _forget(self, live: LiveRun) -> None:
        allocation_id = live.run.allocation_id
        forgotten = await self._disk(self._runs.note_done, allocation_id)
        await self._disk(self.tokens.forget, forgotten)
        for old in forgotten:
            self._done.pop(old, None)
        self._done[allocation_id] = replace(live.run, phase="done")
        del self._live[allocation_id]
        in_use = [other.run.assignment.context_hash for other in self._live.values()]
        await asyncio.to_thread(self._contexts.prune, in_use)
