"""Reports on their way to the agent, in order, sent by a thread of its own so that training does not wait for a disk.

Reports that people only look at, metrics and progress, are merged if several wait. Validations and checkpoints are facts, each of
which is recorded; they share calls, and a trial that makes them faster than they can be recorded waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol

from pydantic_core import PydanticSerializationError

from tenuto.schemas.base import Model
from tenuto.schemas.reports import MetricsReport, ProgressReport
from tenuto.schemas.text import storable_document
from tenuto.workers.connection.agent_client import AgentClient, Outgoing
from tenuto.workers.connection.directives import AgentGone

Lane = Literal["tracker", "metrics", "logs"]
PENDING_REPORTS_MAX = 1_000
"""Most waiting reports; beyond it the training thread waits for the agent. They are minutes of reports of a quick trial, a few
megabytes."""
BATCH_REPORTS_MAX = 250
"""Most reports of one call: they share one write of the agent's disk."""
CALL_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of one call's reports: far below the agent's limit (64 MiB), and more than any single report may have."""
CALLS_PER_SECOND_MAX = 20.0
CALLS_BURST_MAX = 20.0
"""Calls that may follow each other at once; after that they are spaced, so that reports are collected and share calls. They
are not spaced while the worker waits for its reports (`flush`)."""
POINTS_SHARED_MAX = 1_000
SHARED_BYTES_MAX = 256 * 1024
"""Most points and bytes of metrics that share one report: far below the bus's limit for one message."""


class Reports(Protocol):
    def report(self, lane: Lane, *bodies: Model) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class NoReports:
    """Reports of a rank other than 0: none, because rank 0 reports for all."""

    def report(self, lane: Lane, *bodies: Model) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class _Pending:
    sequence: int
    lane: Lane
    body: Model
    data: bytes
    more: list[MetricsReport] = field(default_factory=list)
    """Metrics that are sent together with `body`."""
    points: int = 0
    size_bytes: int = 0

    def absorb(self, body: Model, data: bytes) -> bool:
        """Merges `body` into this waiting report; True if it could."""
        if isinstance(body, ProgressReport) and isinstance(self.body, ProgressReport):
            self.body, self.data = body, data
            return True
        if not isinstance(body, MetricsReport) or not isinstance(self.body, MetricsReport):
            return False
        points = (self.points or len(self.body.points)) + len(body.points)
        size_bytes = (self.size_bytes or len(self.data)) + len(data)
        if points > POINTS_SHARED_MAX or size_bytes > SHARED_BYTES_MAX:
            return False
        self.points, self.size_bytes = points, size_bytes
        self.more.append(body)
        return True

    def outgoing(self) -> Outgoing:
        if self.more and isinstance(self.body, MetricsReport):
            points = tuple(point for report in (self.body, *self.more) for point in report.points)
            self.data, self.more = self.body.model_copy(update={"points": points}).to_json(), []
        # A larger report is cut by the agent and shown to operators; a call that it refused would be retried for ever.
        return Outgoing(self.sequence, self.lane, self.data[:CALL_BYTES_MAX])


def _written(body: Model) -> tuple[Model, bytes]:
    """The body as JSON, with U+FFFD for text that JSON cannot express, such as half of a surrogate pair in a file's name."""
    try:
        return body, body.to_json()
    except PydanticSerializationError:
        cleaned = type(body).model_validate(storable_document(body.model_dump()))
        return cleaned, cleaned.to_json()


class Reporter:
    """Keeps each report until the agent has it on disk. Numbers are consecutive per (allocation, rank), over all lanes."""

    def __init__(self, client: AgentClient, last_sequence: int) -> None:
        self._client = client
        self._last_sequence = last_sequence
        self._pending: deque[_Pending] = deque()
        self._changed = threading.Condition()
        self._error: AgentGone | None = None
        self._closed = False
        self._flushing = 0
        self._on_its_way = last_sequence
        """Last sequence number in a call; reports up to it cannot be changed any more."""
        self._newest: dict[Lane, _Pending] = {}
        """Last waiting report of each lane."""
        self._calls, self._calls_at = CALLS_BURST_MAX, time.monotonic()
        self._thread = threading.Thread(target=self._send_all, name="tenuto-reports", daemon=True)
        self._thread.start()

    def report(self, lane: Lane, *bodies: Model) -> None:
        """Adds reports in this order, for one call to the agent. Returns at once, unless too many reports wait. Raises
        AgentGone."""
        written = [_written(body) for body in bodies]
        with self._changed:
            self._wait(PENDING_REPORTS_MAX - 1)
            for body, data in written:
                newest = self._newest.get(lane)
                if newest is not None and newest.sequence > self._on_its_way and newest.absorb(body, data):
                    continue
                self._last_sequence += 1
                self._newest[lane] = _Pending(self._last_sequence, lane, body, data)
                self._pending.append(self._newest[lane])
            self._changed.notify_all()

    def flush(self) -> None:
        """Returns when the agent has every report on disk. Raises AgentGone."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                self._wait(0)
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """Stops the thread without flushing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, pending_max: int) -> None:
        while len(self._pending) > pending_max and self._error is None:
            self._changed.wait()
        if self._error is not None:
            raise self._error

    def _send_all(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                return
            try:
                last = self._client.report(batch)
            except AgentGone as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            except ValueError:  # the channel was closed under us: the process is ending
                return
            with self._changed:
                while self._pending and self._pending[0].sequence <= last:
                    self._pending.popleft()
                self._changed.notify_all()

    def _next_batch(self) -> list[Outgoing]:
        """Reports of the next call, once there are some and the call is due; empty when closed."""
        with self._changed:
            while not self._closed and not self._pending:
                self._changed.wait()
            while not self._closed and not self._flushing and (seconds := self._seconds_to_next_call()) > 0:
                self._changed.wait(seconds)
            if self._closed:
                return []
            self._calls = max(self._calls - 1, 0.0)
            batch, size_bytes = [self._pending[0].outgoing()], len(self._pending[0].data)
            for item in islice(self._pending, 1, BATCH_REPORTS_MAX):
                size_bytes += item.size_bytes or len(item.data)
                if size_bytes > CALL_BYTES_MAX:
                    break
                batch.append(item.outgoing())
            self._on_its_way = batch[-1].sequence
            return batch

    def _seconds_to_next_call(self) -> float:
        now = time.monotonic()
        self._calls = min(self._calls + (now - self._calls_at) * CALLS_PER_SECOND_MAX, CALLS_BURST_MAX)
        self._calls_at = now
        return (1.0 - self._calls) / CALLS_PER_SECOND_MAX
