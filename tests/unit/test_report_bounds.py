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
