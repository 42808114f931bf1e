"""The agent's gRPC server for workers, with one token per allocation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
from pydantic import ValidationError

from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores, needed_stores
from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.reports import REPORT_BYTES_MAX, TRACKER_REPORT, LogMatchReport, LogsReport, MetricsReport
from tenuto.schemas.subjects import Lane
from tenuto.schemas.text import storable_json
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersServicer, add_AgentForWorkersServicer_to_server
from tenuto.workers.agent.database import Disk
from tenuto.workers.agent.live_run import LiveRun
from tenuto.workers.agent.manager import Manager
from tenuto.workers.agent.runtimes.runtime import Endpoint
from tenuto.workers.agent.spool import NewReport, Spool
from tenuto.workers.endings import ENDINGS, Ending

logger = logging.getLogger(__name__)

REPORTS_PER_CALL_MAX = 1_000
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Largest message: a checkpoint report lists its files, and a thousand reports in one call stay below this."""
TOO_LARGE_BYTES_KEPT = 4_096
"""Bytes kept of a larger report: its beginning is parked, where operators can see it."""
PACED_REPORTS = 500
"""Facts of one allocation that wait for numbers before its worker is slowed down: its call is then answered when some of them
have been numbered. A trial that reports facts faster than they can be recorded runs at that speed, and its end need not wait
for many of them."""
PACE_SECONDS_MAX = 10.0
"""Longest delay of such a call, shorter than a worker's patience. If nothing can be recorded for long, the trial goes on and
slowly fills the disk."""
SHUTDOWN_SECONDS = 0.5
TOLD_SECONDS_MAX = 10.0
"""Longest wait of a worker for the agent's first assignments, less than its call takes; they come at once, unless the bus is
away, and then the agent's own declarations of stores have to do."""
NOWHERE = Path("/nonexistent")
"""Directory that a worker is told where the agent has no shared one."""
LANES_OF_WORKERS: frozenset[str] = frozenset({"tracker", "metrics", "logs"})
_ACTIONS: dict[Action, pb.Directive.Action] = {
    "run": pb.Directive.RUN,
    "preempt": pb.Directive.PREEMPT,
    "stop": pb.Directive.STOP,
    "pause": pb.Directive.PAUSE,
    "kill": pb.Directive.KILL,
}
Context = grpc.aio.ServicerContext[Any, Any]


class WorkerDoor(AgentForWorkersServicer):  # type: ignore[misc]
    def __init__(self, manager: Manager, spool: Spool, disk: Disk, stores: Stores, told: asyncio.Event) -> None:
        """`told`: set when the launcher has told of stores, which a started agent may not have heard of yet."""
        self._manager, self._spool, self._disk, self._stores, self._told = manager, spool, disk, stores, told

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloReply:  # noqa: N802
        live = await self._admit(request.allocation_id, context)
        last = await self._disk(self._spool.last_of_worker, request.allocation_id, request.rank)
        assignment = live.run.assignment
        await self._stores_known(assignment)
        return pb.HelloReply(
            assignment=assignment.to_json(),
            last_sequence=last,
            context_directory=str(self._manager.context_path(assignment)),
            checkpoint_directory=str(checkpoint_directory(self._stores, assignment)),
            stores=await asyncio.to_thread(handed_out, self._stores, assignment),
        )

    async def _stores_known(self, assignment: Assignment) -> None:
        with contextlib.suppress(StoreError, TimeoutError):
            if needed_stores(assignment) - (await asyncio.to_thread(self._stores.definitions)).keys():
                async with asyncio.timeout(TOLD_SECONDS_MAX):
                    await self._told.wait()

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportReply:  # noqa: N802
        live = await self._admit(request.allocation_id, context)
        if len(request.reports) > REPORTS_PER_CALL_MAX:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"at most {REPORTS_PER_CALL_MAX} reports in one call")
        reports = []
        for report in request.reports:
            new = _new_report(request.allocation_id, report.lane, report.body, live.run.assignment.trace)
            if isinstance(new, str):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, new)
            else:
                reports.append((report.sequence, new))
        # No await between this check and queueing the write, so that writes after the run's end come after it on disk.
        await self._admit(request.allocation_id, context)
        last = await self._disk(self._spool.append_from_worker, request.allocation_id, request.rank, reports)
        self._manager.spooled.notify()
        await self._pace(request.allocation_id)
        return pb.ReportReply(last_sequence=last)

    async def _pace(self, allocation_id: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACE_SECONDS_MAX):
                while True:
                    committed = self._manager.committed.next()
                    if self._spool.queued_of("tracker", allocation_id) < PACED_REPORTS:
                        return
                    await committed.wait()

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.Directive]:  # noqa: N802
        live = await self._admit(request.allocation_id, context)
        sent: pb.Directive | None = None
        while live.run.holds_slots:
            changed = live.changed.next()
            assignment = live.run.assignment
            directive = pb.Directive(action=_ACTIONS[assignment.action], target_length=assignment.target_length)
            if directive != sent:
                yield directive
                sent = directive
            await changed.wait()

    async def End(self, request: pb.EndRequest, context: Context) -> pb.EndReply:  # noqa: N802
        live = await self._admit(request.allocation_id, context)
        if request.ending not in ENDINGS:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there is no ending {request.ending[:40]!r}")
        await self._manager.note_told(live, cast(Ending, request.ending))
        return pb.EndReply()

    async def _admit(self, allocation_id: str, context: Context) -> LiveRun:
        """The live run of a call. Aborts the call unless the worker's token fits an allocation that runs here."""
        metadata = context.invocation_metadata() or ()
        given = next((str(value) for key, value in metadata if key == "authorization"), "")
        live = self._manager.live(allocation_id)
        if live is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"allocation {allocation_id} does not run here (any more)")
        assert live is not None
        if not secrets.compare_digest(given.encode(), f"Bearer {live.run.token}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token does not fit the allocation")
        return live


def checkpoint_directory(stores: Stores, assignment: Assignment) -> Path:
    """Directory of a trial's checkpoints in the cluster's own store. Without one, no trial that needs it is started here."""
    return (stores.shared or NOWHERE) / str(assignment.experiment_id) / assignment.trial_id


def handed_out(stores: Stores, assignment: Assignment) -> bytes:
    """Declarations for a worker. If they cannot be read, the agent's log says so, and the worker reports the missing store."""
    try:
        return stores.handed_out({SHARED_STORE, *needed_stores(assignment)})
    except StoreError as error:
        logger.warning("allocation %s: %s", assignment.allocation_id, error)
        return b""


def _new_report(allocation_id: str, lane: str, body: bytes, trace: str) -> NewReport | str:
    """Report for the spool, or the reason for refusing it. An unreadable or too large body is passed on and parked."""
    if lane not in LANES_OF_WORKERS:
        return f"workers have no lane {lane!r}"
    if len(body) > REPORT_BYTES_MAX:
        logger.error("allocation %s sent a report of %d bytes; at most %d are taken", allocation_id, len(body), REPORT_BYTES_MAX)
        return NewReport(cast(Lane, lane), "too_large", allocation_id, body[:TOO_LARGE_BYTES_KEPT], trace)
    kind, owner, body = "unreadable", allocation_id, storable_json(body)
    try:
        if lane == "tracker":
            report = TRACKER_REPORT.validate_json(body)
            if isinstance(report, LogMatchReport):
                return "what a log policy matched is reported by the agent itself"
            kind, owner = report.kind, report.allocation_id
        elif lane == "metrics":
            kind, owner = "metrics", MetricsReport.from_json(body).allocation_id
        else:
            kind, owner = "logs", LogsReport.from_json(body).allocation_id
    except (ValidationError, json.JSONDecodeError):
        logger.warning("allocation %s sent a report that cannot be read", allocation_id)
    if owner != allocation_id:
        return f"a worker of {allocation_id} may not report for {owner}"
    return NewReport(cast(Lane, lane), kind, allocation_id, body, trace)


class WorkerServer:
    """The gRPC server, at the address of the agent's runtime."""

    def __init__(self, door: WorkerDoor, endpoint: Endpoint) -> None:
        self._door, self._endpoint = door, endpoint
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Starts to listen. Raises OSError or RuntimeError if that is not possible."""
        self._endpoint.prepare()
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        add_AgentForWorkersServicer_to_server(self._door, self._server)  # type: ignore[no-untyped-call]
        for address in self._endpoint.addresses:
            self._server.add_insecure_port(address)
        await self._server.start()
        self._endpoint.opened()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(SHUTDOWN_SECONDS)
            self._endpoint.closed()
