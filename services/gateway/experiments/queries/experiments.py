"""Reads experiments."""

from __future__ import annotations

import asyncio
import json

from tenuto.schemas.metrics import usable_in_sql
from tenuto.services.gateway.experiments.queries.experiment_search import EXPERIMENT, ExperimentLists
from tenuto.services.gateway.experiments.queries.moments import Moments
from tenuto.services.gateway.experiments.queries.pictures import Pictures
from tenuto.services.gateway.experiments.views import ExperimentDetail
from tenuto.services.gateway.trials.queries.trials import SAID, SILENCE, TrialQueries
from tenuto.services.gateway.trials.views import WorkersView


class ExperimentQueries(ExperimentLists, Moments, Pictures, TrialQueries):
    async def experiment(self, experiment_id: int) -> ExperimentDetail | None:
        rows, counts, best = await asyncio.gather(
            self._rows(f"SELECT {EXPERIMENT}, note, config FROM experiments WHERE experiment_id = $1", experiment_id),
            self._trial_counts([experiment_id]),
            self._rows(
                f"""SELECT c.checkpoint_id FROM trial_checkpoints c JOIN experiments e USING (experiment_id)
                   WHERE c.experiment_id = $1 AND c.deleted_us IS NULL AND c.damaged_us IS NULL
                       AND {usable_in_sql("c.metric")}
                   ORDER BY CASE WHEN e.smaller_is_better THEN c.metric ELSE -c.metric END, c.trial_number, c.batches LIMIT 1""",
                experiment_id,
            ),
        )
        if not rows:
            return None
        row = rows[0]
        row["config"] = json.loads(row["config"])
        best_id = best[0]["checkpoint_id"] if best else None
        return ExperimentDetail(**row, trials=counts.get(experiment_id, {}), best_checkpoint_id=best_id)

    async def workers(self, experiment_id: int, limit: int) -> list[WorkersView]:
        """Present workers of an experiment, the longest silent first."""
        rows = await self._rows(
            f"""SELECT a.allocation_id, a.trial_id, a.slots, t.said_us, t.silent_seconds FROM allocations a
                JOIN (SELECT trial_id, {SAID} AS said_us, {SILENCE} FROM trials WHERE experiment_id = $1) t USING (trial_id)
                WHERE a.experiment_id = $1 AND a.released_us IS NULL AND a.exited_us IS NULL
                ORDER BY t.silent_seconds DESC NULLS LAST, a.allocation_id LIMIT $2""",
            experiment_id,
            limit,
        )
        for row in rows:
            row["agent_ids"] = tuple(part["agent_id"] for part in json.loads(row.pop("slots")))
        return [WorkersView(**row) for row in rows]
