"""Query of a list of experiments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tenuto.schemas.config.experiment import PROJECT_PATTERN
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.experiments.policies.conditions import conditions
from tenuto.services.gateway.experiments.queries.experiment_search import ExperimentSearch, PageCursor, Sort
from tenuto.services.gateway.experiments.views import ExperimentState
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.paging import CURSOR_CHARACTERS_MAX, cursor, read_cursor
from tenuto.services.gateway.read_models.decision_rows import PAGE_MAX


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
            behind = PageCursor(value, experiment_id)
        given = self.model_dump(exclude={"limit", "cursor", "order", "hyperparameter", "total"})
        return ExperimentSearch(
            **given, conditions=wanted, hidden=tuple(sorted(hidden)), descending=self.order == "desc", behind=behind
        )

    def cursor_of(self, place: PageCursor) -> str:
        return cursor(self.sort, self.order, *place)


def _is_place(sort: Sort, value: str) -> bool:
    """True if the database can read the value."""
    try:
        if sort in ("id", "ended"):
            return abs(int(value)) < 2**63
        return sort != "metric" or isinstance(float(value), float)
    except ValueError:
        return False
