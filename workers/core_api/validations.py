"""Validations that this process has reported: one position counts once."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.workers.core_api.session import say

POSITIONS_MAX = 10_000
"""Most positions remembered, the latest. A script that reports one again does so soon after."""


class Validations:
    def __init__(self, metric: str) -> None:
        """`metric`: the one that the search compares."""
        self._metric = metric
        self._reported: dict[int, dict[str, str]] = {}

    def is_new(self, steps: int, metrics: Mapping[str, float]) -> bool:
        """False if the position was reported before. Tells the user what is dropped, or what the search lacks."""
        shown = {name: repr(value) for name, value in metrics.items()}  # NaN is equal to itself here
        if steps in self._reported:
            before = self._reported[steps]
            lost = sorted(name for name, value in shown.items() if before.get(name) != value)
            if lost:
                say(
                    f"a validation at step {steps} was reported before, and one position counts once: {', '.join(lost)} "
                    f"{'is' if len(lost) == 1 else 'are'} dropped. Report all metrics of a position in one call."
                )
            return False
        self._reported[steps] = shown
        if len(self._reported) > POSITIONS_MAX:
            del self._reported[next(iter(self._reported))]
        if self._metric not in metrics:
            given = ", ".join(sorted(metrics)) or "nothing"
            say(
                f"searcher.metric is {self._metric!r}, but report_validation was given {given}: "
                "this trial counts as the worst. Report that metric, or change searcher.metric."
            )
        return True
