"""Reads trials, their validations and checkpoints. Each method is one or two statements; a missing thing is None or an empty
list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tenuto.services.gateway.read_models.decision_rows import SEEN, Hidden, parsed
from tenuto.services.gateway.read_models.places import OwnershipQueries
from tenuto.services.gateway.read_models.rows import Rows
from tenuto.services.gateway.trials.queries.log_lines import LogLines
from tenuto.services.gateway.trials.queries.measurements import Measurements
from tenuto.services.gateway.trials.queries.metric_chunks import MetricChunks
from tenuto.services.gateway.trials.queries.rows import BATCHES, HYPERPARAMETERS, trial_view
from tenuto.services.gateway.trials.views import AllocationView, CheckpointDetail, CheckpointView, TrialView, ValidationView

# A line that a worker prints is a sign of life, too. Where the trial has no workers, nothing is expected of it.
SAID = """CASE WHEN trials.allocation_id IS NOT NULL THEN greatest(trials.said_us, (
    SELECT CASE WHEN l.allocation_id = trials.allocation_id THEN l.time_us END FROM trial_logs l
    WHERE l.experiment_id = trials.experiment_id AND l.trial_number = trials.trial_number ORDER BY l.line DESC LIMIT 1)) END"""
SILENCE = f"(extract(epoch FROM clock_timestamp()) - ({SAID}) / 1e6)::float8 AS silent_seconds"
_TRIAL = f"""trial_id AS id, experiment_id, trial_number AS number, state, {HYPERPARAMETERS}, seed, target_length, {BATCHES},
    length, latest_metric, best_metric, best_batches, allocation_id, allocations, failures, error, decided_position AS reason,
    excluded_agents, stragglers, breaks, requested_us, ended_us, setbacks, restart_at_us, leaving_us, unmanaged,
    {SAID} AS said_us, {SILENCE}"""
_TRIAL_ID = "experiment_id || '-' || trial_number AS trial_id"
_VALIDATION = f"{_TRIAL_ID}, batches, length, time_us, metrics, metric"
_CHECKPOINT = """checkpoint_id AS id, trial_id, experiment_id, allocation_id, batches, length, size_bytes, location, metric,
    saved_us, deleted_us, deleted_position AS delete_reason, damaged_us, damage, resumed_from"""
_ALLOCATION = """allocation_id AS id, trial_id, experiment_id, pool, state, slots, granted_position AS reason, outcome, exit_code,
    error, granted_us, started_us, leaving_us, leaving_position AS leaving_reason, exited_us, released_us"""
CheckpointPlace = tuple[int, int, int, int, str]
"""Place of the last checkpoint of a page: experiment, trial number, batches, time of its saving in us, and id."""
FIRST_CHECKPOINT: CheckpointPlace = (0, 0, -1, 0, "")


class TrialQueries(LogLines, MetricChunks, Measurements, OwnershipQueries):
    async def trials(self, experiment_id: int, after: int, limit: int) -> list[TrialView]:
        rows = await self._told(
            f"SELECT {_TRIAL} FROM trials WHERE experiment_id = $1 AND trial_number > $2 ORDER BY trial_number LIMIT $3",
            experiment_id,
            after,
            limit,
        )
        return [trial_view(row) for row in rows]

    async def trial(self, trial_id: str) -> TrialView | None:
        rows = await self._told(f"SELECT {_TRIAL} FROM trials WHERE trial_id = $1", trial_id)
        return trial_view(rows[0]) if rows else None

    async def validations(
        self, experiment_id: int, trial_number: int | None, after: tuple[int, int], limit: int
    ) -> Rows[ValidationView]:
        """Validations in order. `after`: trial number and batches of the last one of the page before; the same below."""
        rows, more = await self._many(
            limit,
            f"""SELECT {_VALIDATION} FROM trial_validations
                WHERE experiment_id = $1 AND ($2::int IS NULL OR trial_number = $2) AND (trial_number, batches) > ($3, $4)
                ORDER BY trial_number, batches LIMIT $5""",
            experiment_id,
            trial_number,
            *after,
            limit,
        )
        return Rows(rows, lambda row: ValidationView(**parsed(row, "metrics")), more)

    async def longest_validated(self, experiment_id: int, trial_number: int) -> int | None:
        """Length at the trial's last validation; None: it was never validated."""
        rows = await self._rows(
            "SELECT max(length) AS length FROM trial_validations WHERE experiment_id = $1 AND trial_number = $2",
            experiment_id,
            trial_number,
        )
        return rows[0]["length"] if rows else None

    async def trials_numbered(self, experiment_id: int, numbers: Sequence[int]) -> dict[int, TrialView]:
        query = f"SELECT {_TRIAL} FROM trials WHERE experiment_id = $1 AND trial_number = ANY($2::int[])"
        return {row["number"]: trial_view(row) for row in await self._told(query, experiment_id, list(numbers))}

    async def checkpoints(
        self, experiment_id: int | None, deleted: bool, limit: int, trial_id: str | None = None, damaged: bool = False,
        latest: bool = False, behind: CheckpointPlace = FIRST_CHECKPOINT, hidden: Hidden = frozenset(),
    ) -> Rows[CheckpointView]:  # fmt: skip
        """Checkpoints, one page. `deleted`: True: with deleted ones. `damaged`: True: only those that a run found damaged.
        `latest`: True: only the last one of each trial."""
        distinct, down = ("DISTINCT ON (experiment_id, trial_number)", "DESC") if latest else ("", "")
        rows = await self._told(
            f"""SELECT {distinct} {_CHECKPOINT} FROM trial_checkpoints
                WHERE ($1::bigint IS NULL OR experiment_id = $1) AND ($2 OR deleted_us IS NULL)
                    AND ($4::text IS NULL OR trial_id = $4) AND (NOT $5 OR damaged_us IS NOT NULL)
                    AND (experiment_id, trial_number, batches, saved_us, checkpoint_id) > ($6, $7, $8, $9, $10)
                    AND {SEEN.format(11)}
                ORDER BY experiment_id, trial_number, batches {down}, saved_us {down}, checkpoint_id {down} LIMIT $3""",
            experiment_id,
            deleted,
            limit,
            trial_id,
            damaged,
            *behind,
            list(hidden),
            columns=("delete_reason",),
        )
        return Rows(rows, lambda row: CheckpointView(**row), len(rows) == limit)

    async def checkpoint(self, checkpoint_id: str) -> CheckpointDetail | None:
        rows = await self._told(
            f"SELECT {_CHECKPOINT}, files FROM trial_checkpoints WHERE checkpoint_id = $1 ORDER BY saved_us DESC LIMIT 1",
            checkpoint_id,
            columns=("delete_reason",),
        )
        return CheckpointDetail(**parsed(rows[0], "files")) if rows else None

    async def allocations(
        self,
        live: bool,
        experiment_id: int | None,
        limit: int,
        behind: tuple[int, str] | None = None,
        hidden: Hidden = frozenset(),
        trial_id: str | None = None,
    ) -> list[AllocationView]:
        """Allocations, the latest first. `behind`: time of the grant and id of the last one of the page before."""
        rows = await self._told(
            f"""SELECT {_ALLOCATION} FROM allocations
                WHERE (NOT $1 OR released_us IS NULL) AND ($2::bigint IS NULL OR experiment_id = $2)
                    AND ($4::bigint IS NULL OR (granted_us, allocation_id) < ($4, $5)) AND {SEEN.format(6)}
                    AND ($7::text IS NULL OR trial_id = $7)
                ORDER BY granted_us DESC, allocation_id DESC LIMIT $3""",
            live,
            experiment_id,
            limit,
            *(behind or (None, None)),
            list(hidden),
            trial_id,
            columns=("reason", "leaving_reason"),
        )
        return [AllocationView(**parsed(row, "slots")) for row in rows]

    async def configuration(self, experiment_id: int) -> dict[str, Any] | None:
        """Configuration of an experiment, as recorded; None if there is no such experiment."""
        rows = await self._rows("SELECT config FROM experiments WHERE experiment_id = $1", experiment_id)
        return None if not rows else dict(json.loads(rows[0]["config"]))
