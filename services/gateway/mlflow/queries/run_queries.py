"""SQL that finds runs and experiments: trials of both kinds in the words of MLflow's protocol, by its filters and orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.services.gateway.mlflow.policies.run_filters import FilterCondition, SortOrder

STATUS = """CASE t.state WHEN 'queued' THEN 'SCHEDULED' WHEN 'paused' THEN 'SCHEDULED' WHEN 'completed' THEN 'FINISHED'
    WHEN 'early_stopped' THEN 'FINISHED' WHEN 'failed' THEN 'FAILED' WHEN 'canceled' THEN 'KILLED' ELSE 'RUNNING' END"""
_OF = "experiment_id = t.experiment_id AND trial_number = t.trial_number"
NAME = f"""CASE WHEN t.unmanaged
    THEN coalesce((SELECT text FROM unmanaged_tags WHERE {_OF} AND name = 'mlflow.runName'), t.run_name)
    ELSE e.name || ' ' || t.trial_id END"""
USER = "CASE WHEN t.unmanaged THEN t.run_user ELSE e.user_name END"
URI = "'mlflow-artifacts:/' || t.experiment_id || '/' || t.trial_id || '/artifacts'"
RUN = f"""t.experiment_id, t.trial_number, t.trial_id, t.unmanaged, t.run_deleted AS deleted, t.recorded_us, t.state,
    t.requested_us, t.ended_us, t.hyperparameters, t.run_user, e.user_name AS experiment_user, {STATUS} AS status, {NAME} AS name,
    {USER} AS "user", {URI} AS artifact_uri"""
FROM = "FROM trials t JOIN experiments e USING (experiment_id)"
# Of a trial that Tenuto runs: its last validation. (Its training metrics are stored by columns, and are in its histories.)
MANAGED_LATEST = """
    SELECT m.key AS name, m.value::float8 AS value, v.batches AS step, v.time_us / 1000 AS time_ms
    FROM (SELECT metrics, batches, time_us FROM trial_validations WHERE experiment_id = t.experiment_id
              AND trial_number = t.trial_number ORDER BY batches DESC LIMIT 1) v, jsonb_each_text(v.metrics) m
    WHERE NOT t.unmanaged"""
_LATEST = f"SELECT name, value, step, time_ms FROM unmanaged_latest WHERE {_OF} UNION ALL {MANAGED_LATEST}"
_PARAMETERS = f"""SELECT name, text FROM unmanaged_parameters WHERE {_OF}
    UNION ALL SELECT key, value FROM json_each_text(t.hyperparameters::json) WHERE NOT t.unmanaged"""
_TAGS = f"SELECT name, text FROM unmanaged_tags WHERE {_OF}"
_SOURCES = {"metric": (_LATEST, "value"), "parameter": (_PARAMETERS, "text"), "tag": (_TAGS, "text")}
_RUN_ATTRIBUTES: Mapping[str, str] = {
    "run_id": "t.trial_id",
    "run_name": f"({NAME})",
    "status": f"({STATUS})",
    "user_id": f"({USER})",
    "artifact_uri": f"({URI})",
    "start_time": "(t.requested_us / 1000)",
    "end_time": "(t.ended_us / 1000)",
}
_MODEL_ATTRIBUTES: Mapping[str, str] = {
    "name": "m.name",
    "model_id": "('m-' || m.experiment_id || '-' || m.model_number)",
    "model_type": "m.model_type",
    "status": "m.status",
    "source_run_id": "m.source_run_id",
    "creation_timestamp": "(m.created_us / 1000)",
    "last_updated_timestamp": "(m.updated_us / 1000)",
}
_EXPERIMENT_ATTRIBUTES: Mapping[str, str] = {
    "name": "e.name",
    "creation_time": "(e.submitted_us / 1000)",
    "last_update_time": "(coalesce(e.ended_us, e.submitted_us) / 1000)",
    "experiment_id": "e.experiment_id",
}
_EXPERIMENT_TAGS = "SELECT name, text FROM unmanaged_tags WHERE experiment_id = e.experiment_id AND trial_number = 0"


class _Statement:
    """Text with its values, numbered from $1."""

    def __init__(self, attributes: Mapping[str, str], sources: Mapping[str, tuple[str, str]], values: Sequence[Any]) -> None:
        self.values: list[Any] = list(values)
        self._attributes, self._sources = attributes, sources

    def value(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def condition(self, item: FilterCondition) -> str:
        if item.entity == "attribute":
            return self._comparison(self._attributes[item.name], item)
        source, column = self._sources[item.entity]
        found = f"SELECT 1 FROM ({source}) x WHERE x.name = {self.value(item.name)}"
        if item.value is None:
            return f"{'NOT ' if item.operator == 'IS NULL' else ''}EXISTS ({found})"
        number = "" if item.entity != "metric" or item.operator in ("=", "!=") else " AND x.value <> 'NaN'"
        return f"EXISTS ({found} AND {self._comparison(f'x.{column}', item)}{number})"

    def _comparison(self, left: str, item: FilterCondition) -> str:
        if isinstance(item.value, tuple):
            return f"{'NOT ' if item.operator == 'NOT IN' else ''}{left} = ANY({self.value(list(item.value))}::text[])"
        kind = "text" if isinstance(item.value, str) else "float8"
        escape = " ESCAPE ''" if item.operator in ("LIKE", "ILIKE") else ""  # a backslash is one, as in MLflow
        return f"{left} {item.operator} {self.value(item.value)}::{kind}{escape}"

    def order(self, item: SortOrder) -> str:
        if item.entity == "attribute":
            key = self._attributes[item.name]
        else:
            source, column = self._sources[item.entity]
            key = f"(SELECT x.{column} FROM ({source}) x WHERE x.name = {self.value(item.name)} LIMIT 1)"
            key = f"nullif({key}, 'NaN')" if item.entity == "metric" else key
        return f"{key} {'ASC' if item.ascending else 'DESC'} NULLS LAST"


def find_runs(
    experiment_ids: Sequence[int],
    given: Sequence[FilterCondition],
    orders: Sequence[SortOrder],
    view: str,
    limit: int,
    offset: int,
    hidden: Sequence[str],
) -> tuple[str, list[Any]]:
    """`view`: ACTIVE_ONLY, DELETED_ONLY or ALL. `hidden`: workspaces."""
    made = _Statement(_RUN_ATTRIBUTES, _SOURCES, [list(experiment_ids), limit, offset, list(hidden)])
    where = [
        "t.experiment_id = ANY($1::bigint[])",
        "e.deleted_us IS NULL",
        "e.workspace <> ALL($4::text[])",
        *_alive("t.run_deleted", view),
        *(made.condition(item) for item in given),
    ]
    keys = [*(made.order(item) for item in orders), "t.requested_us DESC", "t.experiment_id DESC", "t.trial_number DESC"]
    return f"SELECT {RUN} {FROM} WHERE {' AND '.join(where)} ORDER BY {', '.join(keys)} LIMIT $2 OFFSET $3", made.values


def find_experiments(
    given: Sequence[FilterCondition], orders: Sequence[SortOrder], view: str, limit: int, offset: int, hidden: Sequence[str]
) -> tuple[str, list[Any]]:
    made = _Statement(_EXPERIMENT_ATTRIBUTES, {"tag": (_EXPERIMENT_TAGS, "text")}, [limit, offset, list(hidden)])
    where = [
        "e.workspace <> ALL($3::text[])",
        "e.deleted_us IS NULL",
        *_alive("e.archived", view),
        *(made.condition(item) for item in given),
    ]
    keys = [*(made.order(item) for item in orders), "e.experiment_id DESC"]
    query = f"SELECT {EXPERIMENT} FROM experiments e WHERE {' AND '.join(where)} ORDER BY {', '.join(keys)} LIMIT $1 OFFSET $2"
    return query, made.values


EXPERIMENT = 'e.experiment_id, e.name, e.user_name AS "user", e.state, e.method, e.archived, e.submitted_us, e.ended_us'
MODEL = """m.experiment_id, m.model_number AS number, m.name, m.model_type, m.status, m.source_run_id, m.user_name AS "user",
    m.created_us, m.updated_us, m.deleted"""
_OF_MODEL = "experiment_id = m.experiment_id AND trial_number = -m.model_number"


def find_models(
    experiment_ids: Sequence[int],
    given: Sequence[FilterCondition],
    orders: Sequence[tuple[SortOrder, tuple[str, str]]],
    datasets: Sequence[tuple[str, str]],
    limit: int,
    offset: int,
    hidden: Sequence[str],
) -> tuple[str, list[Any]]:
    """`orders`: each with the data set (name and digest, empty: any) by whose metrics. `datasets`: those whose metrics the
    conditions are about; none: all. `hidden`: workspaces."""
    sources = {kind: (f"SELECT name, text FROM unmanaged_{kind}s WHERE {_OF_MODEL}", "text") for kind in ("parameter", "tag")}
    made = _Statement(_MODEL_ATTRIBUTES, sources, [list(experiment_ids), limit, offset, list(hidden)])

    def by_metrics_of(wanted: Sequence[tuple[str, str]]) -> None:
        one_of = [
            f"(dataset_name = {made.value(name)}::text"
            + (f" AND dataset_digest = {made.value(digest)}::text)" if digest else ")")
            for name, digest in wanted
        ]
        query = """SELECT name, value FROM unmanaged_model_metrics
            WHERE experiment_id = m.experiment_id AND model_number = m.model_number"""
        if one_of:
            query += f" AND ({' OR '.join(one_of)})"
        sources["metric"] = (f"{query} ORDER BY time_ms DESC, step DESC", "value")

    if any(item.entity == "metric" for item in given):  # PostgreSQL refuses values that no part of the text names
        by_metrics_of(datasets)
    where = [
        "m.experiment_id = ANY($1::bigint[])",
        "NOT m.deleted",
        "e.deleted_us IS NULL",
        "e.workspace <> ALL($4::text[])",
        *(made.condition(item) for item in given),
    ]
    keys = []
    for order, (name, digest) in orders:
        if order.entity == "metric":
            by_metrics_of([(name, digest)] if name else [])
        keys.append(made.order(order))
    keys += ["m.created_us DESC", "m.experiment_id DESC", "m.model_number DESC"]
    joined = "unmanaged_models m JOIN experiments e USING (experiment_id)"
    return f"SELECT {MODEL} FROM {joined} WHERE {' AND '.join(where)} ORDER BY {', '.join(keys)} LIMIT $2 OFFSET $3", made.values


def _alive(deleted: str, view: str) -> list[str]:
    return {"ACTIVE_ONLY": [f"NOT {deleted}"], "DELETED_ONLY": [deleted]}.get(view, [])
