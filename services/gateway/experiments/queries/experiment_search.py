"""Finds experiments: by name, label, user, state, time, best metric and hyperparameters, sorted, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tenuto.services.gateway.experiments.policies.conditions import Condition
from tenuto.services.gateway.experiments.views import ExperimentState
from tenuto.services.gateway.read_models.rows import Fetching

EXPERIMENT = """experiment_id AS id, name, description, labels, archived, deletion_due_us, deleted_us, user_name AS "user",
    workspace, project, state, method, metric, smaller_is_better, pool, slots_per_trial, priority, weight, max_slots, max_trials,
    max_concurrent_trials, seed, context_hash, context_size_bytes, submitted_us, ended_us, error, best_trial_id, best_metric"""
Sort = Literal["id", "name", "user", "state", "ended", "metric"]
_PLACES: Mapping[Sort, tuple[str, str]] = {
    "id": ("experiment_id", "bigint"),
    "name": ("lower(name)", "text"),
    "user": ("user_name", "text"),
    "state": ("state", "text"),
    "ended": ("coalesce(ended_us, 9223372036854775807)", "bigint"),
    "metric": ("coalesce(best_metric, '{last}Infinity')", "float8"),
}
"""Sort -> the expression, never null, and its type. What has no metric comes last in both directions."""
_WORDS = r"concat_ws(E'\n', experiment_id, name, method, user_name, array_to_string(labels, E'\n'))"


class PageCursor(NamedTuple):
    """The last experiment of a page: the next page begins behind it."""

    value: str
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class ExperimentSearch:
    """None: any."""

    before: int | None = None
    state: ExperimentState | None = None
    name: str | None = None
    """A part of the name, in small or large letters."""
    text: str | None = None
    """Words, each of which occurs in the number, the name, the method, the user or a label, in small or large letters."""
    method: str | None = None
    label: str | None = None
    user: str | None = None
    workspace: str | None = None
    project: str | None = None
    parent: int | None = None
    """Experiment that it was made from."""
    hidden: tuple[str, ...] = ()
    """Workspaces of which nothing is shown."""
    submitted_after_us: int | None = None
    submitted_before_us: int | None = None
    metric_above: float | None = None
    metric_below: float | None = None
    """Limits of the best metric."""
    conditions: tuple[Condition, ...] = ()
    """All hold for one trial of the experiment."""
    archived: bool = False
    deleted: bool = False
    """These, too."""
    sort: Sort = "id"
    descending: bool = True
    behind: PageCursor | None = None


class _Where:
    def __init__(self) -> None:
        self.parts: list[str] = ["true"]
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        """`condition`: with {} for each value. Nothing where a value is None."""
        if all(value is not None for value in values):
            first = len(self.values) + 1
            self.values += values
            self.parts.append(condition.format(*(f"${first + index}" for index in range(len(values)))))

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts)


def _where(search: ExperimentSearch) -> _Where:
    where = _Where()
    where.add("experiment_id < {}", search.before)
    where.add("state = {}", search.state)
    where.add("strpos(lower(name), lower({})) > 0", search.name)
    for word in (search.text or "").split():
        where.add(f"strpos(lower({_WORDS}), lower({{}})) > 0", word)
    where.add("method = {}", search.method)
    where.add("labels @> ARRAY[{}::text]", search.label)
    where.add("user_name = {}", search.user)
    where.add("workspace = {}", search.workspace)
    where.add("project = {}", search.project)
    where.add("parent_id = {}", search.parent)
    if search.hidden:
        where.add("workspace <> ALL({}::text[])", list(search.hidden))
    where.add("submitted_us >= {}", search.submitted_after_us)
    where.add("submitted_us < {}", search.submitted_before_us)
    where.add("coalesce(best_metric, '-Infinity') > {}", search.metric_above)  # as the indexes have it
    where.add("coalesce(best_metric, 'Infinity') < {}", search.metric_below)
    if not search.archived:
        where.add("NOT archived")
    if not search.deleted:
        where.add("deleted_us IS NULL")
    if search.conditions:
        names = list(dict.fromkeys(condition.name for condition in search.conditions))  # a range is one row, looked up once
        joined = " JOIN ".join(
            f"trial_hyperparameters h{index}" + (" USING (experiment_id, trial_number)" if index else "")
            for index in range(len(names))
        )
        holds, values = [f"h{index}.name = {{}}" for index in range(len(names))], list[Any](names)
        for name, operator, value in search.conditions:
            column, kind = ("text", "text") if isinstance(value, str) else ("number", "float8")
            holds.append(f"h{names.index(name)}.{column} {operator} {{}}::{kind}")
            values.append(value)
        where.add(f"experiment_id IN (SELECT experiment_id FROM {joined} WHERE {' AND '.join(holds)})", *values)
    return where


class ExperimentLists(Fetching):
    async def experiments(self, search: ExperimentSearch, limit: int) -> tuple[list[str], PageCursor | None]:
        """One page of ExperimentViews, each as JSON that the database wrote: as objects of ours, a thousand would hold up
        everybody for 30 ms. And the place behind which the next page begins; None: there is none."""
        where = _where(search)
        place, kind = _PLACES[search.sort]
        down, than = ("DESC", "<") if search.descending else ("ASC", ">")
        place = place.format(last="-" if search.descending else "")
        if search.behind is not None:
            where.add(f"({place}, experiment_id) {than} ({{}}::text::{kind}, {{}}::bigint)", *search.behind)
        rows = await self._searched(
            f"""WITH page AS MATERIALIZED (
                    SELECT *, ({place})::text AS place FROM experiments WHERE {where.sql}
                    ORDER BY {place} {down}, experiment_id {down} LIMIT {limit:d}
                )
                SELECT experiment_id, place, (SELECT row_to_json(shown) FROM (
                    SELECT {EXPERIMENT}, coalesce(trials, '{{}}') AS trials) shown)::text AS body
                FROM page, LATERAL (
                    SELECT json_object_agg(c.state, c.trials ORDER BY c.state) AS trials FROM (
                        SELECT t.state, count(*) AS trials FROM trials t WHERE t.experiment_id = page.experiment_id
                        GROUP BY t.state) c) counted
                ORDER BY {place} {down}, experiment_id {down}""",
            *where.values,
        )
        last = PageCursor(rows[-1]["place"], rows[-1]["experiment_id"]) if len(rows) == limit else None
        return [row["body"] for row in rows], last

    async def count_experiments(self, search: ExperimentSearch) -> int:
        """Number of experiments on all pages."""
        where = _where(search)
        return int(
            (await self._searched(f"SELECT count(*) AS total FROM experiments WHERE {where.sql}", *where.values))[0]["total"]
        )

    async def _trial_counts(self, experiment_ids: Sequence[int]) -> Mapping[int, dict[Any, int]]:
        rows = await self._rows(
            """SELECT experiment_id, state, count(*) AS trials FROM trials WHERE experiment_id = ANY($1::bigint[])
               GROUP BY experiment_id, state ORDER BY experiment_id, state""",
            list(experiment_ids),
        )
        counts: dict[int, dict[Any, int]] = {}
        for row in rows:
            counts.setdefault(row["experiment_id"], {})[row["state"]] = row["trials"]
        return counts
