"""Reports on their way to the agent, in order, sent by a thread of its own so that training does not wait for a disk."""

from __future__ import annotations

import threading
from collections import deque
from typing import Literal, Protocol

from tenuto.schemas.base import Model
from tenuto.workers.harness.agent_client import AgentClient, Outgoing
from tenuto.workers.harness.directives import AgentGone

Lane = Literal["tracker", "metrics", "logs"]
PENDING_REPORTS_MAX = 1_000
"""Beyond this the training thread waits for the agent: minutes of reports of a quick trial, a few megabytes."""
BATCH_REPORTS_MAX = 100
"""One call's reports: they share one write of the agent's disk."""


class Reports(Protocol):
    def report(self, lane: Lane, *bodies: Model) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class NoReports:
    """Of a rank other than 0: what it would say, rank 0 says."""

    def report(self, lane: Lane, *bodies: Model) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Reporter:
    """Keeps each report until the agent has it on disk. Numbers are consecutive per (allocation, rank), over all lanes."""

    def __init__(self, client: AgentClient, last_sequence: int) -> None:
        self._client = client
        self._last_sequence = last_sequence
        self._pending: deque[Outgoing] = deque()
        self._changed = threading.Condition()
        self._error: AgentGone | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._send_all, name="tenuto-reports", daemon=True)
        self._thread.start()

    def report(self, lane: Lane, *bodies: Model) -> None:
        """In this order, and in one call to the agent. Returns at once, unless too many reports wait. Raises AgentGone."""
        written = [body.to_json() for body in bodies]
        with self._changed:
            self._wait(PENDING_REPORTS_MAX - 1)
            for data in written:
                self._last_sequence += 1
                self._pending.append(Outgoing(self._last_sequence, lane, data))
            self._changed.notify_all()

    def flush(self) -> None:
        """Returns when the agent has every report on disk. Raises AgentGone."""
        with self._changed:
            self._wait(0)

    def close(self) -> None:
        """Does not flush."""
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
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                batch = [self._pending[index] for index in range(min(BATCH_REPORTS_MAX, len(self._pending)))]
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
