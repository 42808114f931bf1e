"""Reads what pictures of many trials or experiments are drawn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tenuto.schemas.metrics import usable_in_sql
from tenuto.services.gateway.read_models.rows import Fetching

SPARK_ROWS_MAX = 2_000
"""Validations that are read of one trial for a spark line, the latest."""


class Pictures(Fetching):
    async def measured(self, experiment_id: int, limit: int) -> list[tuple[dict[str, Any], float]]:
        """Hyperparameters and best metric of trials with a finite one. Of more, any, but each time the same."""
        rows = await self._rows(
            f"""SELECT hyperparameters, best_metric FROM trials WHERE experiment_id = $1 AND {usable_in_sql("best_metric")}
                ORDER BY hashtext(trial_id), trial_number LIMIT $2""",
            experiment_id,
            limit,
        )
        return [(json.loads(row["hyperparameters"]), row["best_metric"]) for row in rows]

    async def best_curves(self, experiment_ids: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        """Batches and the searcher's metric of each experiment's best trial, in order."""
        rows = await self._rows(
            f"""SELECT e.experiment_id, v.batches, v.metric FROM experiments e CROSS JOIN LATERAL (
                    SELECT batches, metric FROM trial_validations t WHERE t.experiment_id = e.experiment_id
                        AND t.trial_number = split_part(e.best_trial_id, '-', 2)::int AND {usable_in_sql("t.metric")}
                    ORDER BY batches DESC LIMIT {SPARK_ROWS_MAX}) v
                WHERE e.experiment_id = ANY($1::bigint[]) AND e.best_trial_id IS NOT NULL AND e.deleted_us IS NULL
                ORDER BY e.experiment_id, v.batches""",
            list(experiment_ids),
        )
        found: dict[int, list[tuple[int, float]]] = {}
        for row in rows:
            found.setdefault(row["experiment_id"], []).append((row["batches"], row["metric"]))
        return found
