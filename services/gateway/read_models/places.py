"""Reads the workspaces and owners of experiments."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.services.gateway.read_models.decision_rows import Hidden, Telling


class OwnershipQueries(Telling):
    async def exists(self, experiment_id: int) -> bool:
        return bool(await self._rows("SELECT 1 FROM experiments WHERE experiment_id = $1", experiment_id))

    async def place(self, experiment_id: int) -> tuple[str, str] | None:
        """(user who submitted it, workspace)."""
        rows = await self._rows("SELECT user_name, workspace FROM experiments WHERE experiment_id = $1", experiment_id)
        return (str(rows[0]["user_name"]), str(rows[0]["workspace"])) if rows else None

    async def experiment_counts(self, hidden: Hidden) -> dict[str, dict[str, int]]:
        """Workspace -> project -> number of experiments."""
        rows = await self._rows(
            """SELECT workspace, project, count(*) AS experiments FROM experiments WHERE workspace <> ALL($1::text[])
               GROUP BY workspace, project""",
            list(hidden),
        )
        counts: dict[str, dict[str, int]] = {}
        for row in rows:
            counts.setdefault(row["workspace"], {})[row["project"]] = row["experiments"]
        return counts

    async def stored_bytes(self, workspace: str) -> int:
        """Bytes of the kept checkpoints of its experiments. A trial that goes on from another's checkpoint has no second copy of
        it."""
        [row] = await self._rows(
            """SELECT coalesce(sum(size_bytes), 0)::bigint AS bytes FROM (
                 SELECT DISTINCT ON (checkpoint_id) size_bytes FROM trial_checkpoints JOIN experiments USING (experiment_id)
                 WHERE workspace = $1 AND trial_checkpoints.deleted_us IS NULL ORDER BY checkpoint_id) AS kept""",
            workspace,
        )
        found: int = row["bytes"]
        return found

    async def hidden_among(self, experiment_ids: Sequence[int], hidden: Hidden) -> frozenset[int]:
        """Experiments among these that are in one of the workspaces."""
        query = "SELECT experiment_id FROM experiments WHERE experiment_id = ANY($1::bigint[]) AND workspace = ANY($2::text[])"
        return frozenset(row["experiment_id"] for row in await self._rows(query, list(experiment_ids), list(hidden)))
