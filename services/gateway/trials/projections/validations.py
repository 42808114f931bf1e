"""Folds validations, of which a trial may report hundreds a second: consecutive ones in a few statements for all of them. One by
one they cost four statements each, and a single trial made all views fall behind without bound."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.metrics import usable
from tenuto.services.gateway.read_models.common import Connection, numbers, to_json

_ADD = """
    WITH added AS (
        INSERT INTO trial_validations (experiment_id, trial_number, batches, length, allocation_id, time_us, metrics, metric)
        SELECT v.experiment_id, v.trial_number, v.batches, v.length, v.allocation_id, v.time_us, v.metrics::jsonb,
            (v.metrics::jsonb ->> e.metric)::float8
        FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
            WITH ORDINALITY AS v (experiment_id, trial_number, batches, length, allocation_id, time_us, metrics, place)
            JOIN experiments e USING (experiment_id)
        ORDER BY v.place
        ON CONFLICT DO NOTHING RETURNING experiment_id, trial_number, batches, metric)
    SELECT added.*, e.smaller_is_better FROM added JOIN experiments e USING (experiment_id)"""
_TRIAL = """
    UPDATE trials t SET batches = greatest(t.batches, $3), length = greatest(t.length, $4), latest_metric = $5, said_us = $6,
        best_metric = CASE WHEN b.better THEN $7 ELSE t.best_metric END,
        best_batches = CASE WHEN b.better THEN $8 ELSE t.best_batches END
    FROM (SELECT t2.experiment_id, t2.trial_number, $7::float8 IS NOT NULL AND (t2.best_metric IS NULL
              OR CASE WHEN e.smaller_is_better THEN $7 < t2.best_metric ELSE $7 > t2.best_metric END) AS better
          FROM trials t2 JOIN experiments e USING (experiment_id)
          WHERE t2.experiment_id = $1 AND t2.trial_number = $2) b
    WHERE t.experiment_id = b.experiment_id AND t.trial_number = b.trial_number"""
_EXPERIMENT = """
    UPDATE experiments SET best_metric = $2, best_trial_id = $3 WHERE experiment_id = $1 AND (best_metric IS NULL
        OR CASE WHEN smaller_is_better THEN $2::float8 < best_metric ELSE $2 > best_metric END)"""
_CHECKPOINTS = """
    UPDATE trial_checkpoints c SET metric = v.metric
    FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::float8[]) AS v (experiment_id, trial_number, batches, metric)
    WHERE c.experiment_id = v.experiment_id AND c.trial_number = v.trial_number AND c.batches = v.batches"""


@dataclass(frozen=True)
class Added:
    experiment_id: int
    number: int
    time_us: int
    data: ValidationReported
    metric: float | None
    smaller_is_better: bool


async def validated(db: Connection, events: Sequence[Event]) -> None:
    """Adds validations in the order of the record; the first one of a trial at a number of batches counts."""
    if not (added := await _add(db, events)):
        return
    trials, searches = defaultdict(list), defaultdict(list)
    for item in added:
        trials[item.experiment_id, item.number].append(item)
        searches[item.experiment_id].append(item)
    rows = []
    for (experiment_id, number), items in trials.items():
        best, last = best_of(items), items[-1]
        most = max(item.data.batches for item in items), max(item.data.length for item in items)
        found = (best.metric, best.data.batches) if best else (None, None)
        rows.append((experiment_id, number, *most, last.metric, last.time_us, *found))
    await db.executemany(_TRIAL, rows)
    bests = [(experiment_id, best_of(items)) for experiment_id, items in searches.items()]
    await db.executemany(_EXPERIMENT, [(item, best.metric, best.data.trial_id) for item, best in bests if best])
    keys = [(item.experiment_id, item.number, item.data.batches, item.metric) for item in added]
    await db.execute(_CHECKPOINTS, *map(list, zip(*keys, strict=True)))


async def _add(db: Connection, events: Sequence[Event]) -> list[Added]:
    """Adds the validations that the table does not have; returns these."""
    rows: list[tuple[int, int, int, int, str, int, str]] = []
    first: dict[tuple[int, int, int], tuple[int, ValidationReported]] = {}
    for event in events:
        data = event.data
        assert isinstance(data, ValidationReported)
        key = (*numbers(data.trial_id), data.batches)
        metrics = to_json(json.loads(event.payload)["metrics"])  # as recorded: NaN is a string
        rows.append((*key, data.length, data.allocation_id, event.time_us, metrics))
        first.setdefault(key, (event.time_us, data))
    added = await db.fetch(_ADD, *map(list, zip(*rows, strict=True)))
    made = {(row["experiment_id"], row["trial_number"], row["batches"]): row for row in added}
    return [
        Added(key[0], key[1], time_us, data, made[key]["metric"], made[key]["smaller_is_better"])
        for key, (time_us, data) in first.items()
        if key in made
    ]


def best_of(items: Sequence[Added]) -> Added | None:
    """The earliest of the best among usable values."""
    known = [(item.metric, item) for item in items if usable(item.metric)]
    if not known:
        return None
    choose = min if items[0].smaller_is_better else max
    return choose(known, key=lambda pair: pair[0])[1]
