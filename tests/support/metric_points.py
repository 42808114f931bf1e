"""Training metrics written as the tracker writes them, without a tracker."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg
import numpy as np

from tenuto.kernel.metrics.columns import Columns, Numbers, Point, cut, sets_of
from tenuto.kernel.metrics.packing import unpacked
from tenuto.services.tracker.projections.metrics import write_sets


async def store(pool: asyncpg.Pool, trial: int, points: Mapping[int, Mapping[str, float]], experiment: int = 1) -> None:
    """`points`: metrics by batches; each was measured at 10 times its batches."""
    some = [Point(batches, batches * 10, 1, metrics) for batches, metrics in points.items()]
    await write_sets(pool, {(experiment, trial): sets_of(some)})


async def store_columns(
    pool: asyncpg.Pool, trial: int, metrics: Mapping[str, Numbers], experiment: int = 1, first: int = 1
) -> None:
    """Many points, at each batch one from `first` on."""
    names = tuple(sorted(metrics))
    values = np.stack([np.asarray(metrics[name], np.float64) for name in names])
    batches = np.arange(first, first + values.shape[1])
    whole = Columns(batches, batches * 10, np.ones_like(batches), names, values)
    await write_sets(pool, {(experiment, trial): cut(whole)})


async def stored(pool: asyncpg.Pool, trial: int = 1) -> list[tuple[int, int, int, dict[str, float]]]:
    """Batches, time, number of the allocation, and metrics of each point of a trial of experiment 1."""
    rows = await pool.fetch(
        """SELECT points, wide, names, steps, numbers FROM trial_metric_chunks WHERE experiment_id = 1 AND trial_number = $1
           ORDER BY first_batches""",
        trial,
    )
    sets = [unpacked(*row) for row in rows]
    return [
        (int(one.batches[i]), int(one.times_us[i]), int(one.runs[i]), one.metrics(i)) for one in sets for i in range(len(one))
    ]
