"""Reads runs, unmanaged ones and Tenuto's own trials alike, as MLflow's clients ask for them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.kernel.metrics.columns import absent
from tenuto.services.gateway.mlflow.policies.run_filters import FilterCondition, SortOrder
from tenuto.services.gateway.mlflow.queries.run_queries import EXPERIMENT, FROM, MANAGED_LATEST, RUN, find_experiments, find_runs
from tenuto.services.gateway.trials.queries.metric_chunks import MetricChunks

RUNS_MAX = 1_000
"""Most runs of one page, however many the client asks for: it then fetches the next page by itself."""
EXPERIMENTS_MAX = 1_000
OFFSET_MAX = 10_000_000
HISTORY_MAX = 25_000
"""Most values of one page of a metric's history."""
CHUNK_RUNS = 40
"""Most runs whose parameters, tags and metrics are fetched at once (a chunk)."""
CHUNK_RUNS_FIRST = 2
"""Runs of the first chunk, and of one that follows a chunk of CHUNK_CHARACTERS or more: one run may have five million
characters. Any other chunk has twice as many runs as the chunk before."""
CHUNK_CHARACTERS = 1 << 20
CHARACTERS_MAX = 16 << 20
"""Approximate limit of a page: it ends with the run that exceeds it."""
_KEYS = "unnest($1::bigint[], $2::int[]) AS k (experiment_id, trial_number)"


@dataclass(frozen=True)
class RunRow:
    experiment_id: int
    trial_number: int
    trial_id: str
    unmanaged: bool
    deleted: bool
    recorded_us: int
    state: str
    requested_us: int
    ended_us: int | None
    hyperparameters: str
    run_user: str
    experiment_user: str
    status: str
    name: str
    user: str
    artifact_uri: str

    @property
    def key(self) -> tuple[int, int]:
        return self.experiment_id, self.trial_number


@dataclass
class RunDetails:
    parameters: list[tuple[str, str]] = field(default_factory=list)
    tags: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Name, value, step, time in milliseconds."""
    inputs: list[str] = field(default_factory=list)
    models_read: list[str] = field(default_factory=list)
    models_made: list[tuple[str, int]] = field(default_factory=list)
    """Id and step."""


@dataclass(frozen=True)
class ExperimentRow:
    experiment_id: int
    name: str
    user: str
    state: str
    method: str
    archived: bool
    submitted_us: int
    ended_us: int | None


class RunQueries(MetricChunks):
    async def run(self, trial_id: str) -> RunRow | None:
        rows = await self._rows(f"SELECT {RUN} {FROM} WHERE t.trial_id = $1", trial_id)
        return RunRow(**rows[0]) if rows else None

    async def search(
        self,
        experiment_ids: Sequence[int],
        given: Sequence[FilterCondition],
        orders: Sequence[SortOrder],
        view: str,
        limit: int,
        offset: int,
        hidden: Sequence[str],
    ) -> tuple[list[tuple[RunRow, RunDetails]], bool]:
        """Page of at most `limit` runs, and True if there may be more. `hidden`: workspaces that are not searched."""
        query, values = find_runs(experiment_ids, given, orders, view, limit, offset, hidden)
        rows = [RunRow(**row) for row in await self._rows(query, *values)]
        found: list[tuple[RunRow, RunDetails]] = []
        characters, count = 0, CHUNK_RUNS_FIRST
        while len(found) < len(rows) and characters <= CHARACTERS_MAX:
            chunk = rows[len(found) : len(found) + count]
            details = await self.details(chunk)
            before = characters
            for row in chunk:
                if characters > CHARACTERS_MAX:
                    break
                found.append((row, details[row.key]))
                characters += _characters(details[row.key])
            count = min(2 * count, CHUNK_RUNS) if characters - before < CHUNK_CHARACTERS else CHUNK_RUNS_FIRST
        return found, len(rows) == limit or len(found) < len(rows)

    async def details(self, runs: Sequence[RunRow]) -> dict[tuple[int, int], RunDetails]:
        found: dict[tuple[int, int], RunDetails] = defaultdict(RunDetails)
        keys = [run.experiment_id for run in runs], [run.trial_number for run in runs]
        names = "experiment_id, trial_number, name"
        for kind in ("parameters", "tags"):
            query = f"SELECT {names}, text FROM {_KEYS} JOIN unmanaged_{kind} USING (experiment_id, trial_number) ORDER BY name"
            for row in await self._rows(query, *keys):
                getattr(found[row["experiment_id"], row["trial_number"]], kind).append((row["name"], row["text"]))
        query = f"SELECT {names}, value, step, time_ms FROM {_KEYS} JOIN unmanaged_latest USING (experiment_id, trial_number)"
        managed = [run for run in runs if not run.unmanaged]
        rows = await self._rows(query, *keys)
        if managed:
            query = f"""SELECT t.experiment_id, t.trial_number, l.* FROM {_KEYS}
                JOIN trials t USING (experiment_id, trial_number) CROSS JOIN LATERAL ({MANAGED_LATEST}) l"""
            rows += await self._rows(query, *keys)
        for row in sorted(rows, key=lambda row: str(row["name"])):
            point = row["name"], row["value"], row["step"], row["time_ms"]
            found[row["experiment_id"], row["trial_number"]].metrics.append(point)
        query = (
            f"SELECT experiment_id, trial_number, input FROM {_KEYS} JOIN unmanaged_inputs USING (experiment_id, trial_number)"
        )
        for row in await self._rows(query, *keys):
            found[row["experiment_id"], row["trial_number"]].inputs.append(row["input"])
        query = f"""SELECT experiment_id, trial_number, output, model_id, step FROM {_KEYS}
            JOIN unmanaged_model_uses USING (experiment_id, trial_number) ORDER BY step, model_id"""
        for row in await self._rows(query, *keys):
            of_run = found[row["experiment_id"], row["trial_number"]]
            if row["output"]:
                of_run.models_made.append((row["model_id"], row["step"]))
            else:
                of_run.models_read.append(row["model_id"])
        for run in managed:
            found[run.key].parameters += _flat(json.loads(run.hyperparameters))
            found[run.key].tags += [("tenuto.state", run.state)]
        return found

    async def history(self, run: RunRow, name: str, limit: int, offset: int) -> list[tuple[float, int, int]]:
        """Values of a metric with their steps and times in milliseconds, by time."""
        if run.unmanaged:
            query = """SELECT value, step, time_ms FROM unmanaged_metrics
                WHERE experiment_id = $1 AND trial_number = $2 AND name = $3 ORDER BY time_ms, step, value LIMIT $4 OFFSET $5"""
            rows = await self._rows(query, run.experiment_id, run.trial_number, name, limit, offset)
            return [(row["value"], row["step"], row["time_ms"]) for row in rows]
        query = """SELECT (metrics->>$3)::float8 AS value, batches AS step, time_us / 1000 AS time_ms FROM trial_validations
            WHERE experiment_id = $1 AND trial_number = $2 AND metrics ? $3"""
        rows = await self._rows(query, run.experiment_id, run.trial_number, name)
        found = [(row["time_ms"], row["step"], row["value"]) for row in rows]
        async for _, columns in self.columns(run.experiment_id, run.trial_number, (0, -1), {name}):
            if name in columns.names:
                values = columns.values[columns.names.index(name)]
                some = zip(
                    columns.times_us.tolist(), columns.batches.tolist(), values.tolist(), absent(values).tolist(), strict=True
                )
                found += [(time_us // 1000, step, value) for time_us, step, value, lacks in some if not lacks]
        return [(value, step, time_ms) for time_ms, step, value in sorted(found)[offset : offset + limit]]

    async def experiment(self, experiment_id: int) -> ExperimentRow | None:
        query = f"SELECT {EXPERIMENT} FROM experiments e WHERE experiment_id = $1 AND deleted_us IS NULL"
        rows = await self._rows(query, experiment_id)
        return ExperimentRow(**rows[0]) if rows else None

    async def experiments(
        self,
        given: Sequence[FilterCondition],
        orders: Sequence[SortOrder],
        view: str,
        limit: int,
        offset: int,
        hidden: Sequence[str],
    ) -> list[ExperimentRow]:
        query, values = find_experiments(given, orders, view, limit, offset, hidden)
        return [ExperimentRow(**row) for row in await self._rows(query, *values)]

    async def experiment_tags(self, experiment_ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        found: dict[int, list[tuple[str, str]]] = defaultdict(list)
        query = """SELECT experiment_id, name, text FROM unmanaged_tags
            WHERE experiment_id = ANY($1::bigint[]) AND trial_number = 0 ORDER BY name"""
        for row in await self._rows(query, list(experiment_ids)):
            found[row["experiment_id"]].append((row["name"], row["text"]))
        return found


def _characters(details: RunDetails) -> int:
    texts = sum(len(name) + len(text) for name, text in (*details.parameters, *details.tags))
    models = len(details.models_read) + len(details.models_made)
    return texts + sum(map(len, details.inputs)) + 100 * (len(details.metrics) + models)


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested hyperparameters under names with dots, as text."""
    found: list[tuple[str, str]] = []
    for name in sorted(values):
        value = values[name]
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value if isinstance(value, str) else json.dumps(value)))
    return found
