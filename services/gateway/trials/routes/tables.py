"""Metrics by columns, for programs that load them into a data frame."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tenuto.services.gateway.http.context import more
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.door import Door
from tenuto.services.gateway.trials.queries.metric_tables import ROWS_MAX, Kind, TooManyMetrics

router = APIRouter(tags=["experiments"], route_class=StrictRoute)
NPY = "application/x-npy"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {NPY: {"schema": {"type": "string", "format": "binary"}}}, "description": "A table in numpy's format"}
}


@router.get("/experiments/{experiment_id}/metrics/table", response_class=Response, responses=_RESPONSES)
async def table(
    door: Door,
    experiment_id: Annotated[int, Path(ge=1, le=2**62)],
    kind: Annotated[Kind, Query(description="Kind of the metrics.")] = "training",
    trial: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Only the trial with this number.")] = None,
    metric: Annotated[str | None, Query(min_length=1, max_length=4_096, description="Only this metric.")] = None,
    after_trial: Annotated[int, Query(ge=0, le=2**31 - 1, description="Trial of the last row that you have.")] = 0,
    after_batches: Annotated[int, Query(ge=-1, le=2**62, description="Batches of the last row that you have.")] = -1,
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = ROWS_MAX,
) -> Response:
    """Metrics as a file of numpy (.npy), one record per point, by trial and batches: `trial` (its number), `batches`, `time_us`,
    for validations `length`, and a column `metrics.NAME` for each metric, NaN where a point lacks it. With the header
    `Tenuto-More: true` the page was full: go on behind its last record."""
    names = () if metric is None else (metric,)
    try:
        page = await door.tables.page(kind, experiment_id, trial, (after_trial, after_batches), names, limit)
    except TooManyMetrics as error:
        raise DoorError("invalid", str(error), "metric") from error
    if not page.rows and not await door.views.exists(experiment_id):
        raise not_found(f"experiment {experiment_id}")
    return Response(page.npy, media_type=NPY, headers=more(page.more))
