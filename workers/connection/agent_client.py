"""The worker's gRPC client to its agent; it waits patiently while the agent restarts."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Assignment
from tenuto.workers.connection.directives import ACTIONS, AgentGone, Directive, DirectiveBox
from tenuto.workers.endings import Ending

# gRPC's fork handlers print a warning at each fork of a data-loader worker. Those never use the channel, so the handlers are
# not needed; the variable must be set before gRPC is loaded, and is not left for the user's own processes.
_fork_support = os.environ.get("GRPC_ENABLE_FORK_SUPPORT")
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
import grpc  # noqa: E402

from tenuto.schemas.wire import worker_pb2 as pb  # noqa: E402
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersStub  # noqa: E402

if _fork_support is None:
    del os.environ["GRPC_ENABLE_FORK_SUPPORT"]
else:
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = _fork_support

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_SECONDS_MAX = 30.0
"""Longest Hello or Report: writing to the agent's disk takes milliseconds, so a longer call means a hung agent."""
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
AGENT_SILENT_SECONDS_MAX = 300.0
"""Silence of the agent after which the worker gives up. An agent restarts in seconds; after this time its node is being
removed, and the worker's results can no longer be recorded."""
AGENT_DENIES_SECONDS_MAX = 30.0
"""Time after which a worker gives up if its agent answers but does not know it. Such an agent is about to kill the worker;
this is for the case that it does not."""
DENIALS = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND})


@dataclass(frozen=True)
class Welcome:
    assignment: Assignment
    last_sequence: int
    context_directory: Path
    checkpoint_directory: Path
    stores: Stores = field(default_factory=Stores)
    """Stores that the trial needs."""


@dataclass(frozen=True)
class Outgoing:
    sequence: int
    lane: str
    body: bytes


class _Patience:
    """Duration of the agent's failures, and the pause before the next attempt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._pause = RETRY_SECONDS_MIN

    def success(self) -> None:
        self._since, self._pause = None, RETRY_SECONDS_MIN

    def failure(self, error: grpc.RpcError) -> float:
        """Seconds to pause. Raises AgentGone if the failures lasted too long."""
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        limit = AGENT_DENIES_SECONDS_MAX if code in DENIALS else AGENT_SILENT_SECONDS_MAX
        if now - self._since > limit:
            detail = error.details() if isinstance(error, grpc.Call) else str(error)
            raise AgentGone(f"The agent could not be reached for {limit:.0f} seconds ({code.name}: {detail}).")
        pause, self._pause = self._pause, min(2 * self._pause, RETRY_SECONDS_MAX)
        return pause


class AgentClient:
    """One worker's connection. Thread-safe, as gRPC channels are."""

    def __init__(self, address: str, token: str, allocation_id: str, rank: int, clock: Clock) -> None:
        """`address`: of the agent, as gRPC names it."""
        self._allocation_id, self._rank, self._clock = allocation_id, rank, clock
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._closed = threading.Event()
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.enable_http_proxy", 0),
            ],
        )
        self._stub: Any = AgentForWorkersStub(self._channel)  # type: ignore[no-untyped-call]

    def hello(self) -> Welcome:
        """First call: the worker's assignment. Raises AgentGone."""
        request = pb.HelloRequest(allocation_id=self._allocation_id, rank=self._rank, pid=os.getpid())
        reply = self._patiently(lambda: self._stub.Hello(request, metadata=self._metadata, timeout=CALL_SECONDS_MAX))
        return Welcome(
            assignment=Assignment.from_json(reply.assignment),
            last_sequence=reply.last_sequence,
            context_directory=Path(reply.context_directory),
            checkpoint_directory=Path(reply.checkpoint_directory),
            stores=Stores.given_by(reply.stores),
        )

    def report(self, reports: Sequence[Outgoing]) -> int:
        """Sends reports; returns the last sequence number in the agent's spool. Retries until they are there; raises
        AgentGone."""
        request = pb.ReportRequest(
            allocation_id=self._allocation_id,
            rank=self._rank,
            reports=[pb.Report(sequence=item.sequence, lane=item.lane, body=item.body) for item in reports],
        )
        reply = self._patiently(lambda: self._stub.Report(request, metadata=self._metadata, timeout=CALL_SECONDS_MAX))
        return int(reply.last_sequence)

    def watch(self, box: DirectiveBox) -> None:
        """Puts each directive into the box until `close`. Runs in a thread of its own."""
        patience = _Patience(self._clock)
        request = pb.WatchRequest(allocation_id=self._allocation_id, rank=self._rank)
        while not self._closed.is_set():
            try:
                for message in self._stub.Watch(request, metadata=self._metadata):
                    patience.success()
                    _put(message, box)
                pause = RETRY_SECONDS_MIN  # the agent ended the stream in order: it is stopping
            except grpc.RpcError as error:
                if self._closed.is_set():
                    return
                try:
                    pause = patience.failure(error)
                except AgentGone as gone:
                    box.agent_gone(str(gone))
                    return
            except ValueError:  # gRPC's answer to a call on a closed channel
                return
            self._closed.wait(pause)

    def end(self, ending: Ending) -> None:
        """Last call: tells how this run ends. Returns when that is on the agent's disk; raises AgentGone."""
        request = pb.EndRequest(allocation_id=self._allocation_id, rank=self._rank, ending=ending)
        self._patiently(lambda: self._stub.End(request, metadata=self._metadata, timeout=CALL_SECONDS_MAX))

    def close(self) -> None:
        self._closed.set()
        self._channel.close()

    def _patiently(self, call: Callable[[], Any]) -> Any:
        patience = _Patience(self._clock)
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                self._closed.wait(patience.failure(error))


def _put(message: pb.Directive, box: DirectiveBox) -> None:
    name = pb.Directive.Action.Name(message.action).lower()
    for action in ACTIONS:  # an action of a newer agent is none that this worker could carry out
        if action == name:
            box.put(Directive(action, message.target_length))
