"""Shows a trial's reports on the terminal, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.kernel.clock import Clock, SystemClock
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.reports import CheckpointReport, MetricsReport, TrainingEndedReport, ValidationReport
from tenuto.workers.core_api.local_record import Body
from tenuto.workers.core_api.session import say

LINE_SECONDS_MIN = 1.0
"""Shortest time between two lines of training metrics: a quick model reports hundreds a second."""
METRICS_SHOWN_MAX = 8


class Terminal:
    """Called with each report of one process, in order, by any thread."""

    def __init__(self, config: ExperimentConfig, clock: Clock | None = None, *, lengths: bool = True) -> None:
        """`lengths`: show how much of the configuration's length is done."""
        self._lengths = lengths
        self._length, self._unit = config.searcher.max_length.value, config.searcher.max_length.unit
        self._clock = SystemClock() if clock is None else clock
        self._shown_at = self._clock.monotonic() - LINE_SECONDS_MIN
        self._before: tuple[int, int] | None = None
        """(batches, time in microseconds) of the last line with training metrics."""

    def __call__(self, body: Body) -> None:
        if isinstance(body, MetricsReport):
            self._training(body)
        elif isinstance(body, ValidationReport):
            say(f"batch {body.batches}, validation{self._of(body.length)}: {shown(body.metrics)}")
        elif isinstance(body, TrainingEndedReport):
            why = f": {body.said}" if body.said else ""
            say(f"batch {body.batches}, the training ended by itself{self._of(body.length)}{why}")
        elif isinstance(body, CheckpointReport):
            say(f"batch {body.batches}: checkpoint {body.checkpoint_id}, {body.size_bytes / 1e6:.1f} MB")

    def _training(self, body: MetricsReport) -> None:
        now = self._clock.monotonic()
        if not body.points or now - self._shown_at < LINE_SECONDS_MIN:
            return
        self._shown_at = now
        point = body.points[-1]
        pace = ""
        if self._before is not None and point.time_us > self._before[1] and point.batches > self._before[0]:
            pace = f" ({1e6 * (point.batches - self._before[0]) / (point.time_us - self._before[1]):.3g} batches/s)"
        self._before = point.batches, point.time_us
        say(f"batch {point.batches}: {shown(point.metrics)}{pace}")

    def _of(self, length: int) -> str:
        if not self._lengths:
            return ""
        done = f"epoch {length} of {self._length}" if self._unit == "epochs" else f"{length} of {self._length} batches"
        return f" ({done})"


def shown(metrics: Mapping[str, float]) -> str:
    """The metrics as `name value, ...`."""
    first = [f"{name} {value:.6g}" for name, value in list(metrics.items())[:METRICS_SHOWN_MAX]]
    return ", ".join(first) + (f" and {len(metrics) - len(first)} more" if len(metrics) > len(first) else "")
