"""Curves of training metrics, with as many points as a picture has pixels."""

from __future__ import annotations

import asyncio
import csv
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from tenuto.services.gateway.http.context import more
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import CURSOR_CHARACTERS_MAX, cursor, read_cursor
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.door import Door
from tenuto.services.gateway.trials.queries.metric_chunks import CURVE_TRIALS_MAX, CurvesPicture, SeenCurves
from tenuto.services.gateway.trials.views import CurvesView

router = APIRouter(tags=["experiments"], route_class=StrictRoute)
METRICS_MAX = 20
"""Most metrics of one answer: more curves than that are no picture."""
POINTS_DEFAULT = 1_000
POINTS_MAX = 4_000
"""Most points: pixels of the widest screens."""
PIXELS_MAX = 500_000
"""Most pixels of all curves of one answer: at most four times as many points, some 50 MB."""


class CurvesQuery(BaseModel):
    """Parameters of a picture."""

    model_config = ConfigDict(frozen=True)

    metrics: str = Field(
        default="",
        max_length=4_000,
        description=f"Names of up to {METRICS_MAX} metrics, with commas between; one that has a comma stands in double quotes. "
        "None: the answer only says which there are.",
    )
    trials: str | None = Field(
        default=None,
        max_length=4_000,
        pattern=r"^[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?(,[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?)*$",
        description=f"Numbers of trials and ranges of them, such as `1,4,7-9`; without it the first {CURVE_TRIALS_MAX:,} with "
        "metrics.",
    )
    points: int | None = Field(
        default=None,
        ge=1,
        le=POINTS_MAX,
        description=f"Width of the picture in pixels. Without it {POINTS_DEFAULT:,}, fewer for very many curves.",
    )
    first: int | None = Field(
        default=None, ge=0, le=2**62, description="Begin of the range, in batches; without it the first point."
    )
    last: int | None = Field(
        default=None, ge=0, le=2**62, description="End of the range, in batches; without it the last point, also as it moves on."
    )
    times: bool = Field(default=False, description="With the time of each point.")
    cursor: str | None = Field(
        default=None,
        max_length=CURSOR_CHARACTERS_MAX,
        description="Of the answer before: only what has changed since, with the same other parameters.",
    )

    def wanted_metrics(self) -> list[str]:
        """Raises DoorError."""
        try:
            rows = list(csv.reader([self.metrics], strict=True))
        except csv.Error as error:
            raise DoorError("invalid", f"metrics is no list of names with commas between: {error}.", "metrics") from None
        names = list(dict.fromkeys(name for row in rows for name in row if name))
        if len(names) > METRICS_MAX:
            raise DoorError("invalid", f"metrics names {len(names)} metrics; the most is {METRICS_MAX}.", "metrics")
        return names

    def wanted_trials(self) -> list[int] | None:
        """Raises DoorError."""
        if self.trials is None:
            return None
        found: set[int] = set()
        for part in self.trials.split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), min(int(last or first), int(first) + CURVE_TRIALS_MAX) + 1))
            if len(found) > CURVE_TRIALS_MAX:
                raise DoorError("invalid", f"trials names more than {CURVE_TRIALS_MAX:,} trials.", "trials")
        return sorted(found)

    def seen(self) -> SeenCurves | None:
        """Raises DoorError."""
        if self.cursor is None:
            return None
        try:
            return SeenCurves(*read_cursor(self.cursor, (int, int, int)))
        except DoorError as error:
            message = "cursor is not one of such curves; take it from the answer before."
            raise DoorError("invalid", message, error.path) from None


@router.get("/experiments/{experiment_id}/metrics/curves", response_model=CurvesView)
async def curves(
    door: Door, experiment_id: Annotated[int, Path(ge=1, le=2**62)], query: Annotated[CurvesQuery, Query()]
) -> Response:
    """Training metrics of several trials, thinned for a picture: the range is cut into columns of `width` batches, at least as
    many as `points` asks for and at most about twice as many. Each column has the smallest and the largest value with the batches
    of their measurement; NaN only if it has no other value. If the range has few points, all are included.

    To follow, ask again with `cursor`: then each curve replaces the one that you have from `since` on, and missing ones have not
    changed; if `whole` is true, forget those that you have.
    """
    metrics, trials = query.wanted_metrics(), query.wanted_trials()
    if query.first is not None and query.last is not None and query.last < query.first:
        raise DoorError("invalid", f"last is {query.last}, before first, {query.first}.", "last")
    count = max(len(metrics), 1) * (len(trials) if trials is not None else await door.views.trial_count(experiment_id))
    points = query.points or max(min(POINTS_DEFAULT, PIXELS_MAX // max(count, 1)), 1)
    if count * points > PIXELS_MAX:
        message = f"{count:,} curves of {points:,} points are more than the {PIXELS_MAX:,} of one answer: ask for fewer of them."
        raise DoorError("invalid", message, "points")
    picture = await door.views.picture(experiment_id, trials, metrics, points, (query.first, query.last), query.seen())
    if not picture.names and picture.whole and not await door.views.exists(experiment_id):
        raise not_found(f"experiment {experiment_id}")
    body = await asyncio.to_thread(_encoded, experiment_id, picture, query.times)
    return Response(body, media_type="application/json", headers=more(picture.more_trials))


def _encoded(experiment_id: int, picture: CurvesPicture, times: bool) -> bytes:
    seen = picture.seen
    found: list[dict[str, Any]] = []
    for trial, metric, since, curve in picture.curves:
        item = {"trial_id": f"{experiment_id}-{trial}", "metric": metric, "since": since}
        item |= {"batches": curve.batches.tolist(), "values": curve.values.tolist()}
        found.append(item | {"time_us": curve.times_us.tolist() if times else None})
    body = {
        "width": 1 << seen.exponent,
        "first": seen.first,
        "last": picture.end - 1,
        "cursor": cursor(seen.write_number, seen.exponent, seen.first),
        "whole": picture.whole,
        "metrics": picture.names,
        "curves": found,
    }
    return to_json(body, inf_nan_mode="strings")
