"""Filters and order of a list of experiments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field

from tenuto.services.gateway.http.paging import cursor, next_page, read_cursor
from tenuto.services.gateway.read_models.common import numbers
from tenuto.services.gateway.read_models.decision_rows import POINTS_MAX
from tenuto.services.gateway.read_models.rows import Rows
from tenuto.services.gateway.trials.queries.log_lines import Level, LineSearch
from tenuto.services.gateway.trials.queries.trials import FIRST_CHECKPOINT, CheckpointPlace
from tenuto.services.gateway.trials.views import LogLineView

AfterTrial = Annotated[int, Query(ge=0, le=2**31 - 1, description="Trial of the last one that you have.")]
AfterBatches = Annotated[int, Query(ge=-1, le=2**62, description="Batches of the last one that you have.")]


def onward_by_batches(request: Request, rows: Rows[Any], *, trial: bool) -> dict[str, str]:
    """Headers of a page of metrics or validations. `trial`: True: the page has those of all trials."""
    if not rows.more or (end := rows.end) is None:
        return {}
    if not trial:
        return next_page(request, after=end["batches"])
    return next_page(request, after_trial=numbers(end["trial_id"])[1], after_batches=end["batches"])


_CHECKPOINT = (int, int, int, int, str)


def behind_checkpoint(given: str | None) -> CheckpointPlace:
    """Raises DoorError."""
    return FIRST_CHECKPOINT if given is None else read_cursor(given, _CHECKPOINT)


def onward_of_checkpoints(request: Request, rows: Rows[Any]) -> dict[str, str]:
    if not rows.more or (end := rows.end) is None:
        return {}
    place = (end["experiment_id"], numbers(end["trial_id"])[1], end["batches"], end["saved_us"], end["id"])
    return next_page(request, cursor=cursor(*place))


class LogQuery(BaseModel):
    model_config = ConfigDict(frozen=True)

    after: int = Field(default=0, ge=-1, le=2**62, description="Only lines with a larger number.")
    limit: int = Field(default=1_000, ge=1, le=POINTS_MAX)
    tail: bool = Field(default=False, description="The last ones.")
    text: str | None = Field(
        default=None, min_length=1, max_length=200, description="Part of the line, in small or large letters."
    )
    rank: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Only of this rank.")
    level: Level | None = Field(
        default=None, description="At least this level, where the line says one in capitals within its first 100 characters."
    )

    def search(self) -> LineSearch:
        return LineSearch(text=self.text, rank=self.rank, level=self.level)

    def onward(self, request: Request, rows: Rows[LogLineView]) -> dict[str, str]:
        """Headers of the page; with `tail` there is none behind it."""
        return next_page(request, after=rows.last) if rows.more and rows.last is not None else {}
