"""A real gRPC server in the agent's place: serves one assignment, records reports, hands out directives, and can be restarted.

Numbering is held to the protocol: a report that is not the next one fails the test, and a repeated one is dropped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Assignment, SourceCheckpoint
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.events.trial import files_hash
from tenuto.schemas.ids import location_of
from tenuto.schemas.reports import (
    TRACKER_REPORT,
    CheckpointReport,
    DamageReport,
    DataReport,
    EnvironmentReport,
    LogsReport,
    MetricsReport,
    TrackerReport,
    ValidationReport,
)
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersServicer, add_AgentForWorkersServicer_to_server
from tenuto.workers.agent.runtimes.process.scratch import kept_variables
from tests.support.waiting import until
from tests.support.warm_starts import WarmProcess, stop_kept, warm_starts
from tests.support.worker_run import WAIT_SECONDS_MAX, WorkerRun

TOKEN = "stand-in-token"


@dataclass
class AgentStandIn(AgentForWorkersServicer):  # type: ignore[misc]
    assignment: Assignment
    context_directory: Path
    checkpoint_directory: Path
    socket: Path
    error_file: Path
    stores: Stores = field(default_factory=Stores)
    last_sequence: int = 0
    reports: list[TrackerReport] = field(default_factory=list)
    records: list[EnvironmentReport | DataReport] = field(default_factory=list)
    """Reports of environment and data, one of each per start of the worker."""
    metrics: list[MetricsReport] = field(default_factory=list)
    logs: list[LogsReport] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    """How workers, or supervisors of gangs, told that they end."""
    problems: list[str] = field(default_factory=list)
    delivered: pb.Directive | None = None
    """The last directive written to the worker's stream."""
    tell: Callable[[], str] = lambda: ""
    """Text added to the message of a failing test: the workers' output."""
    watchers: int = 0
    """Streams of directives opened so far."""
    react: Callable[[TrackerReport], pb.Directive | None] = lambda report: None
    """Called with each new tracker report; a directive that it returns is handed out."""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.directive = pb.Directive(
            action=pb.Directive.Action.Value(self.assignment.action.upper()), target_length=self.assignment.target_length
        )
        self.server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        add_AgentForWorkersServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        with self.changed:
            self.server = server

    def stop(self) -> None:
        with self.changed:
            server, self.server = self.server, None
            self.changed.notify_all()
        if server is not None:
            server.stop(None).wait()

    def direct(self, action: str, target_length: int = 0) -> None:
        with self.changed:
            self.directive = pb.Directive(
                action=pb.Directive.Action.Value(action.upper()),
                target_length=target_length or self.directive.target_length,
            )
            self.changed.notify_all()

    def wait_for(self, what: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(what, WAIT_SECONDS_MAX), f"nothing came; reports so far: {self.reports}{self.tell()}"

    def validations(self) -> list[ValidationReport]:
        return [report for report in self.reports if isinstance(report, ValidationReport)]

    def checkpoints(self) -> list[CheckpointReport]:
        return [report for report in self.reports if isinstance(report, CheckpointReport)]

    def damaged(self) -> list[DamageReport]:
        return [report for report in self.reports if isinstance(report, DamageReport)]

    # The protocol.

    def _check(self, request: Any, context: Any) -> None:
        if ("authorization", f"Bearer {TOKEN}") not in [(key, value) for key, value in context.invocation_metadata()]:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        if request.allocation_id != self.assignment.allocation_id:
            self.problems.append(f"allocation {request.allocation_id}")

    def Hello(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check(request, context)
        return pb.HelloReply(
            assignment=self.assignment.to_json(),
            last_sequence=self.last_sequence,
            context_directory=str(self.context_directory),
            checkpoint_directory=str(self.checkpoint_directory),
            stores=self.stores.handed_out(self.stores.definitions()),
        )

    def Report(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check(request, context)
        with self.changed:
            for report in request.reports:
                if report.sequence <= self.last_sequence:
                    continue
                if report.sequence != self.last_sequence + 1:
                    self.problems.append(f"sequence {report.sequence} after {self.last_sequence}")
                self.last_sequence = report.sequence
                if report.lane == "metrics":
                    self.metrics.append(MetricsReport.from_json(report.body))
                elif report.lane == "logs":
                    self.logs.append(LogsReport.from_json(report.body))
                else:
                    self._record(TRACKER_REPORT.validate_json(report.body))
            self.changed.notify_all()
        return pb.ReportReply(last_sequence=self.last_sequence)

    def _record(self, report: TrackerReport) -> None:
        if isinstance(report, (EnvironmentReport, DataReport)):
            self.records.append(report)
            return
        if isinstance(report, CheckpointReport):  # for the test, which looks for its files there
            place = self.checkpoint_directory / "manifests" / f"{report.checkpoint_id}.json"
            report = report.model_copy(update={"location": str(place)})
        self.reports.append(report)
        directive = self.react(report)
        if directive is not None:
            self.directive = directive

    def End(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check(request, context)
        with self.changed:
            self.endings.append(request.ending)
            self.changed.notify_all()
        return pb.EndReply()

    def Watch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._check(request, context)
        context.add_callback(self._wake)
        with self.changed:
            self.watchers += 1
            self.changed.notify_all()
        server, sent = self.server, None
        while context.is_active():
            with self.changed:
                if sent is not None:
                    self.delivered = sent
                    self.changed.notify_all()
                while self.directive is sent and self.server is server and context.is_active():
                    self.changed.wait()
                if self.server is not server:
                    return
                sent = self.directive
            yield sent

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


def source_of(report: CheckpointReport, store: str = SHARED_STORE) -> SourceCheckpoint:
    """This checkpoint as the launcher names it in a worker's assignment."""
    return SourceCheckpoint(
        checkpoint_id=report.checkpoint_id,
        location=location_of(store, report.trial_id, report.checkpoint_id),
        batches=report.batches,
        files_hash=files_hash(report.files),
    )


def begins_with_weights(assignment: Assignment, report: CheckpointReport) -> Assignment:
    """The first allocation of a trial of another experiment, whose `searcher.source_checkpoint` this is."""
    source = source_of(report).model_copy(update={"weights_only": True})
    return assignment.model_copy(update={"trial_id": "2-1", "experiment_id": 2, "checkpoint": source})


def goes_on_with(agent: AgentStandIn, report: CheckpointReport) -> AgentStandIn:
    """The agent's trial is now that of another experiment, which goes on with the one that saved this checkpoint."""
    changes = {"trial_id": "2-1", "allocation_id": "2-1-1", "experiment_id": 2, "checkpoint": source_of(report)}
    agent.assignment = agent.assignment.model_copy(update=changes)
    return agent


class WorkerBench:
    """Runs real worker processes for one trial, allocation after allocation. Use as a context manager: kills what is left."""

    def __init__(
        self,
        directory: Path,
        context_directory: Path,
        config: dict[str, Any],
        hyperparameters: dict[str, Any],
        *,
        cold: bool = False,
        modules: tuple[str, ...] = (),
    ) -> None:
        """`cold`: each worker is a new interpreter, which takes seconds to start. Otherwise workers are forked from a process
        that has imported `modules`."""
        self.directory, self.context_directory = directory, context_directory
        self._cold, self._modules = cold, modules
        self.config = ExperimentConfig.model_validate(config)
        self.hyperparameters = hyperparameters
        self.checkpoint_directory = directory / "checkpoints" / "1" / "1-1"
        self.stores = Stores(directory / "checkpoints")
        """The stores named in the workers' assignments."""
        self.keeps = False  # True: all runs share the process of the first one
        self.allocations = 0
        self.runs: list[WorkerRun] = []
        self.agents: list[AgentStandIn] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="tenuto-worker-", ignore_cleanup_errors=True)
        """Directory of the workers' sockets and files. pytest's own directories have paths too long for a socket's address."""

    def variables(self) -> dict[str, str]:
        """Environment variables of all its workers."""
        return {
            **os.environ,
            **kept_variables(),
            "TMPDIR": self._temporary.name,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONFAULTHANDLER": "1",
        }

    def __enter__(self) -> WorkerBench:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            if run.process.poll() is None:
                run.kill()
        stop_kept(run.process for run in self.runs)
        for agent in self.agents:
            agent.stop()
        self._temporary.cleanup()
        for agent in self.agents:
            assert agent.problems == []

    def agent(
        self,
        target_length: int,
        checkpoint: CheckpointReport | None = None,
        action: str = "run",
        earlier: Sequence[CheckpointReport] = (),
    ) -> AgentStandIn:
        """An agent with the trial's next allocation."""
        self.allocations += 1
        assignment = Assignment(
            allocation_id=f"1-1-{self.allocations}",
            trial_id="1-1",
            trial_number=1,
            experiment_id=1,
            config=self.config,
            context_hash="ab" * 32,
            hyperparameters=self.hyperparameters,
            trial_seed=123456789012345,
            experiment_seed=7,
            slots=(AgentSlots(agent_id="stand-in", slot_ids=(0,)),),
            checkpoint=None if checkpoint is None else source_of(checkpoint, self.config.checkpoint_storage.store),
            earlier_checkpoints=tuple(source_of(item, self.config.checkpoint_storage.store) for item in earlier),
            target_length=target_length,
            action=action,  # type: ignore[arg-type]
        )
        agent = AgentStandIn(
            assignment=assignment,
            context_directory=self.context_directory,
            checkpoint_directory=self.checkpoint_directory,
            stores=self.stores,
            socket=Path(self._temporary.name) / f"a{self.allocations}.sock",
            error_file=self.directory / f"error-{self.allocations}.txt",
        )
        agent.tell = self._printed
        self.agents.append(agent)
        return agent

    def _printed(self) -> str:
        return "".join(f"\n--- {run.log}\n{run.output()}" for run in self.runs[-1:])

    def start(self, agent: AgentStandIn, **environment: str) -> WorkerRun:
        log = self.directory / f"log-{agent.assignment.allocation_id}.txt"
        variables = {
            **self.variables(),
            "TENUTO_AGENT_ADDRESS": f"unix:{agent.socket}",
            "TENUTO_ALLOCATION_ID": agent.assignment.allocation_id,
            "TENUTO_TOKEN": TOKEN,
            "TENUTO_RANK": "0",
            "TENUTO_ERROR_FILE": str(agent.error_file),
            **environment,
        }
        if self._cold:
            process: subprocess.Popen[str] | WarmProcess = self._start_cold(variables, log)
        elif self.keeps:
            before = self.runs[-1].process if self.runs else None
            process = warm_starts(self._modules).start_kept(variables, self.context_directory, log, before)
        else:
            process = warm_starts(self._modules).start(variables, self.context_directory, log)
        run = WorkerRun(process, log)
        self.runs.append(run)
        return run

    def _start_cold(self, variables: dict[str, str], log: Path) -> subprocess.Popen[str]:
        with log.open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tenuto.workers.harness"],
                env=variables,
                cwd=self.context_directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )


def wait_for_file(path: Path) -> None:
    until(lambda: path if path.exists() else f"no {path} yet", lambda found: found == path)
