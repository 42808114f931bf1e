"""Points of training metrics that wait for a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.kernel.clock import Clock
from tenuto.schemas.reports import MetricPoint, MetricsReport
from tenuto.workers.harness.reporter import Reports

METRICS_SECONDS_MIN = 1.0
METRICS_POINTS_MAX = 100
"""Points of metrics that share a report: at most one report a second, or one per hundred points."""


class MetricPoints:
    def __init__(self, ids: Mapping[str, Any], reporter: Reports, clock: Clock) -> None:
        self._ids, self._reporter, self._clock = ids, reporter, clock
        self._points: list[MetricPoint] = []
        self._sent_at = clock.monotonic()

    def add(self, batches: int, metrics: dict[str, float]) -> None:
        """Adds a point, if there are any metrics, and sends what is due."""
        if metrics:
            self._points.append(MetricPoint(batches=batches, time_us=self._clock.now_us(), metrics=metrics))
        waited = self._clock.monotonic() - self._sent_at
        if waited >= METRICS_SECONDS_MIN or len(self._points) >= METRICS_POINTS_MAX:
            self.send()

    def send(self) -> None:
        self._sent_at = self._clock.monotonic()
        if self._points:
            self._reporter.report("metrics", MetricsReport(**self._ids, points=tuple(self._points)))
            self._points.clear()
