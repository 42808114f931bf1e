"""Answers about training metrics."""

from __future__ import annotations

from tenuto.schemas.base import Model


class CurveView(Model):
    trial_id: str
    metric: str
    since: int
    """Batches from which on these points take the place of earlier answers'."""
    batches: list[int]
    values: list[float]
    time_us: list[int] | None


class CurvesView(Model):
    """Training metrics for a picture."""

    width: int
    """Batches of one column."""
    first: int
    """Batches at which the first column begins."""
    last: int
    """The last batches of the last column."""
    cursor: str
    whole: bool
    """False: curves that are missing have not changed since the answer whose cursor was given."""
    metrics: list[str]
    """Names of all metrics of these trials; empty where `whole` is false."""
    curves: list[CurveView]
