"""Reads the views. Each method is one or two statements; what is not there is None or an empty list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence, Set
from importlib.metadata import version
from typing import Any

from tenuto.schemas.bus import Backlog, BusState
from tenuto.schemas.metrics import usable_in_sql
from tenuto.services.gateway.explain import DECISIONS, positions_of, told
from tenuto.services.gateway.projections.event_search import EventSearch
from tenuto.services.gateway.projections.experiment_search import EXPERIMENT, ExperimentLists
from tenuto.services.gateway.projections.log_lines import LogLines
from tenuto.services.gateway.projections.measurements import Measurements
from tenuto.services.gateway.projections.metric_chunks import MetricChunks
from tenuto.services.gateway.projections.pictures import Pictures
from tenuto.services.gateway.projections.rows import Rows
from tenuto.services.gateway.projections.unmanaged import BATCHES, HYPERPARAMETERS, trial_view
from tenuto.services.gateway.projections.views import (
    AgentView,
    CheckpointDetail,
    CheckpointView,
    ConsumerView,
    ExperimentDetail,
    SlotView,
    StatusView,
    TrialView,
    ValidationView,
)
from tenuto.services.gateway.projections.worker_views import AllocationView, SilentTrialView, WorkersView

SILENT_SECONDS_MIN = 600.0
"""Trials of whose workers nothing was heard for so long are named in the status: most report every few seconds, and few do
anything for ten minutes without a word."""
SILENT_MAX = 20
"""Of those, so many are named."""
PAGE_MAX = 1_000
"""Rows of one page of experiments, trials, checkpoints or allocations."""
POINTS_MAX = 50_000
"""Metric points or log lines of one answer: usually some megabytes."""

# A line that a worker prints is a sign of life, too. Where the trial has no workers, nothing is expected of it.
_SAID = """CASE WHEN trials.allocation_id IS NOT NULL THEN greatest(trials.said_us, (
    SELECT CASE WHEN l.allocation_id = trials.allocation_id THEN l.time_us END FROM trial_logs l
    WHERE l.experiment_id = trials.experiment_id AND l.trial_number = trials.trial_number ORDER BY l.line DESC LIMIT 1)) END"""
_SILENCE = f"(extract(epoch FROM clock_timestamp()) - ({_SAID}) / 1e6)::float8 AS silent_seconds"
_TRIAL = f"""trial_id AS id, experiment_id, trial_number AS number, state, {HYPERPARAMETERS}, seed, target_length, {BATCHES},
    length, latest_metric, best_metric, best_batches, allocation_id, allocations, failures, error, decided_position AS reason,
    excluded_agents, stragglers, breaks, requested_us, ended_us, setbacks, restart_at_us, leaving_us, unmanaged,
    {_SAID} AS said_us, {_SILENCE}"""
_TRIAL_ID = "experiment_id || '-' || trial_number AS trial_id"
_VALIDATION = f"{_TRIAL_ID}, batches, length, time_us, metrics, metric"
_CHECKPOINT = """checkpoint_id AS id, trial_id, experiment_id, allocation_id, batches, length, size_bytes, location, metric,
    saved_us, deleted_us, deleted_position AS delete_reason, damaged_us, damage, resumed_from"""
_ALLOCATION = """allocation_id AS id, trial_id, experiment_id, pool, state, slots, granted_position AS reason, outcome, exit_code,
    error, granted_us, started_us, leaving_us, leaving_position AS leaving_reason, exited_us, released_us"""
CheckpointPlace = tuple[int, int, int, int, str]
"""Of the last checkpoint of a page: experiment, trial number, batches, when it was saved, and id."""
FIRST_CHECKPOINT: CheckpointPlace = (0, 0, -1, 0, "")


_SEEN = "(${0}::text[] = '{{}}' OR experiment_id NOT IN (SELECT experiment_id FROM experiments WHERE workspace = ANY(${0})))"
Hidden = Set[str]
"""Workspaces of which nothing is shown."""


class Views(ExperimentLists, LogLines, MetricChunks, Pictures, EventSearch, Measurements):
    async def _told(self, query: str, *values: Any, columns: tuple[str, ...] = ("reason",)) -> list[dict[str, Any]]:
        """Rows that name a decision in each of these columns, with its sentence."""
        rows = await self._rows(query, *values)
        positions = sorted({position for column in columns for position in positions_of(rows, column)})
        decisions = await self._rows(DECISIONS, positions) if positions else []
        for column in columns:
            rows = told(rows, column, decisions)
        return rows

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
        """Of the kept checkpoints of its experiments. A trial that goes on from another's checkpoint has no second copy of it."""
        [row] = await self._rows(
            """SELECT coalesce(sum(size_bytes), 0)::bigint AS bytes FROM (
                 SELECT DISTINCT ON (checkpoint_id) size_bytes FROM trial_checkpoints JOIN experiments USING (experiment_id)
                 WHERE workspace = $1 AND trial_checkpoints.deleted_us IS NULL ORDER BY checkpoint_id) AS kept""",
            workspace,
        )
        found: int = row["bytes"]
        return found

    async def hidden_among(self, experiment_ids: Sequence[int], hidden: Hidden) -> frozenset[int]:
        """Those of the experiments that are in one of the workspaces."""
        query = "SELECT experiment_id FROM experiments WHERE experiment_id = ANY($1::bigint[]) AND workspace = ANY($2::text[])"
        return frozenset(row["experiment_id"] for row in await self._rows(query, list(experiment_ids), list(hidden)))

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
        """`after`: trial number and batches of the last one of the page before; the same below."""
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
        return Rows(rows, lambda row: ValidationView(**_parsed(row, "metrics")), more)

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
        """`deleted`: these, too. `damaged`: only those that a run found damaged. `latest`: only the last one of each trial."""
        distinct, down = ("DISTINCT ON (experiment_id, trial_number)", "DESC") if latest else ("", "")
        rows = await self._told(
            f"""SELECT {distinct} {_CHECKPOINT} FROM trial_checkpoints
                WHERE ($1::bigint IS NULL OR experiment_id = $1) AND ($2 OR deleted_us IS NULL)
                    AND ($4::text IS NULL OR trial_id = $4) AND (NOT $5 OR damaged_us IS NOT NULL)
                    AND (experiment_id, trial_number, batches, saved_us, checkpoint_id) > ($6, $7, $8, $9, $10)
                    AND {_SEEN.format(11)}
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
        return CheckpointDetail(**_parsed(rows[0], "files")) if rows else None

    async def allocations(
        self,
        live: bool,
        experiment_id: int | None,
        limit: int,
        behind: tuple[int, str] | None = None,
        hidden: Hidden = frozenset(),
        trial_id: str | None = None,
    ) -> list[AllocationView]:
        """The latest first. `behind`: when the last one of the page before was granted, and its id."""
        rows = await self._told(
            f"""SELECT {_ALLOCATION} FROM allocations
                WHERE (NOT $1 OR released_us IS NULL) AND ($2::bigint IS NULL OR experiment_id = $2)
                    AND ($4::bigint IS NULL OR (granted_us, allocation_id) < ($4, $5)) AND {_SEEN.format(6)}
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
        return [AllocationView(**_parsed(row, "slots")) for row in rows]

    async def workers(self, experiment_id: int, limit: int) -> list[WorkersView]:
        """Present workers of an experiment, the longest silent first."""
        rows = await self._rows(
            f"""SELECT a.allocation_id, a.trial_id, a.slots, t.said_us, t.silent_seconds FROM allocations a
                JOIN (SELECT trial_id, {_SAID} AS said_us, {_SILENCE} FROM trials WHERE experiment_id = $1) t USING (trial_id)
                WHERE a.experiment_id = $1 AND a.released_us IS NULL AND a.exited_us IS NULL
                ORDER BY t.silent_seconds DESC NULLS LAST, a.allocation_id LIMIT $2""",
            experiment_id,
            limit,
        )
        for row in rows:
            row["agent_ids"] = tuple(part["agent_id"] for part in json.loads(row.pop("slots")))
        return [WorkersView(**row) for row in rows]

    async def silent(self, seconds: float, limit: int, hidden: Hidden = frozenset()) -> list[SilentTrialView]:
        """Trials of whose workers nothing was heard for so long, the longest silent first."""
        rows = await self._rows(
            f"""SELECT * FROM (SELECT trial_id, {_SILENCE} FROM trials WHERE allocation_id IS NOT NULL AND {_SEEN.format(3)}) t
                WHERE silent_seconds > $1 ORDER BY silent_seconds DESC, trial_id LIMIT $2""",
            seconds,
            limit,
            list(hidden),
        )
        return [SilentTrialView(**row) for row in rows]

    async def agents(self) -> list[AgentView]:
        agents, closed, live = await asyncio.gather(
            self._rows("SELECT * FROM agents ORDER BY agent_id"),
            self._rows("SELECT agent_id, slot_id FROM closed_slots"),
            self._rows("SELECT allocation_id, slots FROM allocations WHERE released_us IS NULL"),
        )
        users = {
            (part["agent_id"], slot_id): row["allocation_id"]
            for row in live
            for part in json.loads(row["slots"])
            for slot_id in part["slot_ids"]
        }
        auxiliary: dict[str, list[str]] = {}
        for row in live:
            for part in json.loads(row["slots"]):
                if not part["slot_ids"]:
                    auxiliary.setdefault(part["agent_id"], []).append(row["allocation_id"])
        shut = {(row["agent_id"], row["slot_id"]) for row in closed}
        return [_agent(row, users, shut, auxiliary) for row in agents]

    async def status(self, bus: BusState, backlog: Backlog, hidden: Hidden = frozenset()) -> StatusView:
        head, consumers, parked, agents = await asyncio.gather(
            self._rows("SELECT position FROM log_head"),
            self._rows(
                """SELECT consumer AS name, position FROM checkpoints UNION ALL
                   SELECT projection, position FROM projection_cursors UNION ALL
                   SELECT consumer, position FROM effect_positions ORDER BY name"""
            ),
            self._rows("SELECT count(*) AS parked FROM parked"),
            self.agents(),
        )
        silent = await self.silent(SILENT_SECONDS_MIN, SILENT_MAX, hidden)
        position = head[0]["position"]
        slots = [slot for agent in agents if agent.state != "lost" for slot in agent.slots]
        return StatusView(
            bus=bus,
            backlog=backlog.lanes,
            version=version("tenuto"),
            head=position,
            consumers=tuple(ConsumerView(**row, lag=max(0, position - row["position"])) for row in consumers),
            parked=parked[0]["parked"],
            silent_trials=tuple(silent),
            agents=sum(agent.state != "lost" for agent in agents),
            slots=sum(slot.enabled for slot in slots),
            slots_used=sum(slot.allocation_id is not None for slot in slots),
        )


def _parsed(row: dict[str, Any], column: str) -> dict[str, Any]:
    row[column] = json.loads(row[column])
    return row


def _agent(
    row: dict[str, Any],
    users: Mapping[tuple[str, int], str],
    closed: Set[tuple[str, int]],
    auxiliary: Mapping[str, list[str]],
) -> AgentView:
    """`closed`: (agent, slot) that users took out of service; slot -1 is the whole agent. `auxiliary`: agent -> live allocations
    without slots on it."""
    agent_id = row.pop("agent_id")
    disabled = {slot_id for name, slot_id in closed if name == agent_id} | ({-1} if row["state"] == "leaving" else set())
    slots = tuple(
        SlotView(**slot, enabled=not disabled & {-1, slot["slot_id"]}, allocation_id=users.get((agent_id, slot["slot_id"])))
        for slot in json.loads(row.pop("slots"))
    )
    return AgentView(id=agent_id, slots=slots, auxiliary=tuple(sorted(auxiliary.get(agent_id, ()))), **row)
