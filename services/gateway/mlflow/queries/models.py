"""Reads the models that unmanaged runs logged, as MLflow's clients ask for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.services.gateway.mlflow.policies.run_filters import FilterCondition, SortOrder
from tenuto.services.gateway.mlflow.queries.run_queries import MODEL, find_models
from tenuto.services.gateway.mlflow.queries.runs import CHARACTERS_MAX, CHUNK_RUNS
from tenuto.services.gateway.read_models.rows import Fetching

MODELS_MAX = 1_000
"""Most models of one page, however many the client asks for: it then fetches the next page by itself."""
_KEYS = "unnest($1::bigint[], $2::int[]) AS k (experiment_id, number)"


@dataclass(frozen=True)
class ModelRow:
    experiment_id: int
    number: int
    """Number of the model in its experiment, from 1."""
    name: str
    model_type: str
    status: str
    """PENDING, READY or FAILED."""
    source_run_id: str
    user: str
    created_us: int
    updated_us: int
    deleted: bool

    @property
    def model_id(self) -> str:
        return f"m-{self.experiment_id}-{self.number}"

    @property
    def key(self) -> tuple[int, int]:
        """Key of the model in the tables that runs and models share."""
        return self.experiment_id, -self.number

    @property
    def artifact_uri(self) -> str:
        return f"mlflow-artifacts:/{self.experiment_id}/models/{self.model_id}/artifacts"


class ModelMetric(NamedTuple):
    name: str
    value: float
    step: int
    time_ms: int
    run_id: str
    dataset_name: str
    dataset_digest: str


@dataclass
class ModelDetails:
    parameters: list[tuple[str, str]] = field(default_factory=list)
    tags: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[ModelMetric] = field(default_factory=list)


class Models(Fetching):
    async def model(self, experiment_id: int, number: int) -> ModelRow | None:
        query = f"SELECT {MODEL} FROM unmanaged_models m WHERE experiment_id = $1 AND model_number = $2"
        rows = await self._rows(query, experiment_id, number)
        return ModelRow(**rows[0]) if rows else None

    async def search(
        self,
        experiment_ids: Sequence[int],
        given: Sequence[FilterCondition],
        orders: Sequence[tuple[SortOrder, tuple[str, str]]],
        datasets: Sequence[tuple[str, str]],
        limit: int,
        offset: int,
        hidden: Sequence[str],
    ) -> tuple[list[tuple[ModelRow, ModelDetails]], bool]:
        """Page of at most `limit` models, and True if there may be more. `datasets`: name and digest (empty: any) of the data
        sets whose metrics are compared; none: all. `orders`: each with the data set whose metrics it orders by. `hidden`:
        workspaces that are not searched."""
        query, values = find_models(experiment_ids, given, orders, datasets, limit, offset, hidden)
        rows = [ModelRow(**row) for row in await self._rows(query, *values)]
        found: list[tuple[ModelRow, ModelDetails]] = []
        characters = 0
        while len(found) < len(rows) and characters <= CHARACTERS_MAX:
            chunk = rows[len(found) : len(found) + CHUNK_RUNS]
            details = await self.details(chunk)
            for row in chunk:
                found.append((row, details[row.key]))
                characters += _characters(details[row.key])
        return found, len(rows) == limit or len(found) < len(rows)

    async def details(self, models: Sequence[ModelRow]) -> dict[tuple[int, int], ModelDetails]:
        found: dict[tuple[int, int], ModelDetails] = defaultdict(ModelDetails)
        keys = [model.experiment_id for model in models], [-model.number for model in models]
        for kind in ("parameters", "tags"):
            query = f"""SELECT u.experiment_id, u.trial_number, u.name, u.text FROM {_KEYS}
                JOIN unmanaged_{kind} u ON u.experiment_id = k.experiment_id AND u.trial_number = k.number ORDER BY u.name"""
            for row in await self._rows(query, *keys):
                getattr(found[row["experiment_id"], row["trial_number"]], kind).append((row["name"], row["text"]))
        query = f"""SELECT m.* FROM {_KEYS} JOIN unmanaged_model_metrics m
            ON m.experiment_id = k.experiment_id AND m.model_number = -k.number ORDER BY m.name, m.time_ms, m.step"""
        for row in await self._rows(query, *keys):
            metric = ModelMetric(*(row[name] for name in ModelMetric._fields))
            found[row["experiment_id"], -row["model_number"]].metrics.append(metric)
        return found


def _characters(details: ModelDetails) -> int:
    texts = sum(len(name) + len(text) for name, text in (*details.parameters, *details.tags))
    return texts + 200 * len(details.metrics)
