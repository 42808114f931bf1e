"""A report has a size: what is recorded is read again by every service at each start."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tenuto.schemas.reports import (
    METRIC_NAME_CHARACTERS_MAX,
    METRICS_CHARACTERS_MAX,
    METRICS_MAX,
    TRACKER_REPORT,
    MetricsRead,
    MetricsReport,
)
from tenuto.workers.agent.rpc import NewReport, _new_report


def validation(metrics: dict[str, float]) -> dict[str, Any]:
    return {"kind": "validation", "trial_id": "1-1", "allocation_id": "1-1-1", "batches": 1, "length": 1, "metrics": metrics}


def training(metrics: dict[str, float]) -> dict[str, Any]:
    points = [{"batches": 1, "time_us": 1, "metrics": metrics}]
    return {"kind": "metrics", "trial_id": "1-1", "allocation_id": "1-1-1", "points": points}


@pytest.mark.parametrize(
    "metrics",
    [
        {str(number): 0.5 for number in range(METRICS_MAX + 1)},
        {"x" * (METRIC_NAME_CHARACTERS_MAX + 1): 0.5},
        {f"{number:0200d}": 0.5 for number in range(METRICS_CHARACTERS_MAX // 200 + 1)},
    ],
)
def test_a_report_of_too_many_metrics_is_parked_and_never_recorded(metrics: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=r"it has .*metrics"):
        TRACKER_REPORT.validate_python(validation(metrics))
    with pytest.raises(ValidationError, match=r"it has .*metrics"):
        MetricsReport.model_validate(training(metrics))
    for lane, body in (("tracker", validation(metrics)), ("metrics", training(metrics))):
        made = _new_report("1-1-1", lane, json.dumps(body).encode(), "")
        assert isinstance(made, NewReport)
        assert made.kind == "unreadable"  # its receiver parks it


def test_metrics_of_all_classes_of_a_large_benchmark_are_taken() -> None:
    metrics = {f"validation/average_precision/class_{number}": 0.5 for number in range(1_203)}
    assert TRACKER_REPORT.validate_python(validation(metrics)).metrics == metrics  # type: ignore[union-attr]
    assert MetricsReport.model_validate(training(metrics)).points[0].metrics == metrics


@pytest.mark.parametrize(
    "points",
    [
        [],
        [{"batches": 1, "time_us": 2, "metrics": {"loss": 0.5}}, {"batches": 2, "time_us": 3, "metrics": {"loss": "NaN"}}],
        [{"batches": 1, "time_us": 2, "metrics": {"loss": "-Infinity", "rate": 1}}],
        [{"batches": 1, "time_us": 2}],
        [{"batches": 1, "time_us": 2, "metrics": {"loss": 1.0}, "more": 1}],
        [{"batches": 1.5, "time_us": 2, "metrics": {}}],
        [{"batches": "x", "time_us": 2, "metrics": {}}],
        [{"batches": 1, "time_us": None, "metrics": {"loss": 1.0}}],
        [{"batches": 1, "time_us": 2, "metrics": {"loss": "high"}}],
        [{"batches": 1, "time_us": 2, "metrics": {"loss": None}}],
        [{"batches": 1, "time_us": 2, "metrics": {f"m{n}": 1.0 for n in range(METRICS_MAX + 1)}}],
        [{"batches": 1, "time_us": 2, "metrics": {"m" * 10_000: 1.0}}],
        [[1, 2, {}]],
        "none",
    ],
)
def test_reports_of_metrics_are_read_alike_one_and_many(points: Any) -> None:
    body = json.dumps({"kind": "metrics", "trial_id": "1-1", "allocation_id": "1-1-1", "points": points})
    read: list[Any] = []
    for kind in (MetricsReport, MetricsRead):
        try:
            read.append(json.dumps(kind.from_json(body).model_dump()))
        except ValidationError as error:
            read.append([(item["loc"], item["msg"]) for item in error.errors()])
    assert read[0] == read[1]
