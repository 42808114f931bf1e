"""Reads the moments at which something changed in an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.services.gateway.read_models.rows import Fetching


class Moments(Fetching):
    async def moments(self, experiment_id: int, types: Sequence[str], after: int, limit: int) -> list[tuple[int, int]]:
        """Position and time of events of these types of the experiment above `after`, in order."""
        rows = await self._rows(
            """SELECT position, time_us FROM events WHERE correlation_id = $1 AND position > $2 AND type = ANY($3::text[])
               ORDER BY position LIMIT $4""",
            str(experiment_id),
            after,
            list(types),
            limit,
        )
        return [(row["position"], row["time_us"]) for row in rows]
