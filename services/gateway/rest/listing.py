"""What a list of experiments may be asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field

from tenuto.schemas.config.experiment import PROJECT_PATTERN
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.policies.conditions import conditions
from tenuto.services.gateway.projections.common import numbers
from tenuto.services.gateway.projections.experiment_search import ExperimentSearch, Place, Sort
from tenuto.services.gateway.projections.log_lines import Level, LineSearch
from tenuto.services.gateway.projections.queries import FIRST_CHECKPOINT, PAGE_MAX, POINTS_MAX, CheckpointPlace
from tenuto.services.gateway.projections.rows import Rows
from tenuto.services.gateway.projections.views import ExperimentState, LogLineView
from tenuto.services.gateway.rest.errors import DoorError
from tenuto.services.gateway.rest.paging import CURSOR_CHARACTERS_MAX, cursor, next_page, read_cursor


class ExperimentQuery(BaseModel):
    """Parameters of a query: all that are given must hold."""

    model_config = ConfigDict(frozen=True)

    limit: int = Field(default=100, ge=1, le=PAGE_MAX)
    before: int | None = Field(default=None, ge=0, le=2**62, description="Only those with a smaller id.")
    cursor: str | None = Field(
        default=None,
        max_length=CURSOR_CHARACTERS_MAX,
        description="Of the page before, from its `Link`; with the same parameters.",
    )
    sort: Sort = Field(default="id", description="`ended`: those that run are the last to end; `metric`: the best metric.")
    order: Literal["asc", "desc"] = "desc"
    state: ExperimentState | None = None
    name: str | None = Field(default=None, max_length=256, description="Part of the name, in small or large letters.")
    text: str | None = Field(
        default=None, max_length=256, description="Words that each occur in the number, name, method, user or a label of it."
    )
    method: str | None = Field(default=None, max_length=100, description="Name of the search method.")
    label: str | None = Field(default=None, max_length=100, description="Only those that have this label.")
    user: str | None = Field(default=None, max_length=100, description="User who submitted it.")
    workspace: str | None = Field(default=None, pattern=NAME_PATTERN, description="Only those in it.")
    project: str | None = Field(default=None, pattern=PROJECT_PATTERN, description="Only those in it; empty: in none.")
    parent: int | None = Field(default=None, ge=1, le=2**62, description="Only those that were made from this experiment.")
    submitted_after_us: int | None = Field(default=None, ge=0, le=2**62, description="Submitted then or later.")
    submitted_before_us: int | None = Field(default=None, ge=0, le=2**62, description="Submitted earlier.")
    metric_above: float | None = Field(default=None, allow_inf_nan=False, description="The best metric is larger.")
    metric_below: float | None = Field(default=None, allow_inf_nan=False, description="The best metric is smaller.")
    hyperparameter: str | None = Field(
        default=None,
        max_length=1_000,
        description="Conditions that hold for one of its trials, with commas between: `lr>=0.001,lr<0.1,optimizer=adam`.",
    )
    archived: bool = Field(default=False, description="Archived ones, too.")
    deleted: bool = Field(default=False, description="Deleted ones, too.")
    total: bool = Field(default=False, description="Say in the header `Tenuto-Total` how many there are on all pages.")

    def search(self, hidden: Iterable[str]) -> ExperimentSearch:
        """`hidden`: workspaces of which nothing is shown. Raises DoorError."""
        try:
            wanted = conditions(self.hyperparameter or "")
        except ValueError as error:
            raise DoorError("invalid", f"hyperparameter {error}.", "hyperparameter") from None
        behind = None
        if self.cursor is not None:
            sort, order, value, experiment_id = read_cursor(self.cursor, (str, str, str, int))
            if (sort, order) != (self.sort, self.order) or not _is_place(self.sort, value):
                read_cursor("", ())  # says that it is of another list
            behind = Place(value, experiment_id)
        given = self.model_dump(exclude={"limit", "cursor", "order", "hyperparameter", "total"})
        return ExperimentSearch(
            **given, conditions=wanted, hidden=tuple(sorted(hidden)), descending=self.order == "desc", behind=behind
        )

    def cursor_of(self, place: Place) -> str:
        return cursor(self.sort, self.order, *place)


AfterTrial = Annotated[int, Query(ge=0, le=2**31 - 1, description="Trial of the last one that you have.")]
AfterBatches = Annotated[int, Query(ge=-1, le=2**62, description="Batches of the last one that you have.")]


def onward_by_batches(request: Request, rows: Rows[Any], *, trial: bool) -> dict[str, str]:
    """Headers of a page of metrics or validations. `trial`: it is of all trials."""
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


Cursor = Annotated[str | None, Query(max_length=CURSOR_CHARACTERS_MAX, description="Of the page before, from its `Link`.")]


def _is_place(sort: Sort, value: str) -> bool:
    """Whether the database can read it."""
    try:
        if sort in ("id", "ended"):
            return abs(int(value)) < 2**63
        return sort != "metric" or isinstance(float(value), float)
    except ValueError:
        return False
