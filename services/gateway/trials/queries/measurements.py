"""Validations of whole experiments, as numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tenuto.services.gateway.read_models.rows import Fetching
from tenuto.services.gateway.trials.policies.pareto import ParetoCandidate


class Measurements(Fetching):
    async def recorded_validations(self, experiment_id: int) -> dict[int, list[tuple[int, int, float]]]:
        """Validations by trial: (batches, length, searcher metric) of those with a finite metric, in order."""
        rows = await self._rows(
            """SELECT trial_number, batches, length, metric FROM trial_validations
               WHERE experiment_id = $1 AND abs(metric) <= $2::float8 ORDER BY trial_number, batches""",
            experiment_id,
            sys.float_info.max,
        )
        found: dict[int, list[tuple[int, int, float]]] = {}
        for row in rows:
            found.setdefault(row["trial_number"], []).append((row["batches"], row["length"], row["metric"]))
        return found

    async def measured_in(self, experiment_id: int, metrics: Sequence[str]) -> list[ParetoCandidate]:
        """The last validation of each trial that has all these metrics as finite numbers, by trial. Only their values are read:
        a validation may have a hundred others."""
        rows = await self._rows(
            """SELECT DISTINCT ON (trial_number) trial_number, length, goals.found
               FROM trial_validations, LATERAL (
                   SELECT array_agg((metrics ->> name)::float8 ORDER BY place) AS found
                   FROM unnest($2::text[]) WITH ORDINALITY AS goal (name, place)
                   WHERE CASE WHEN jsonb_typeof(metrics -> name) = 'number'
                              THEN abs((metrics ->> name)::numeric) <= $3::float8::numeric ELSE false END) AS goals
               WHERE experiment_id = $1 AND cardinality(goals.found) = cardinality($2)
               ORDER BY trial_number, batches DESC""",
            experiment_id,
            list(metrics),
            sys.float_info.max,
        )
        return [ParetoCandidate(row["trial_number"], row["length"], tuple(row["found"])) for row in rows]
