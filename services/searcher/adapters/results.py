"""Results of the trials so far, as samplers are given them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tenuto.services.searcher.state import Experiment

WORSE_BY = 0.1
"""Distance of the score given for a trial without one beyond the worst real score, in widths of the scores: enough to be told
apart, and little enough that a Gaussian process still sees the differences between the others."""


@dataclass(frozen=True)
class Results:
    """Results in the state, in the order of trial numbers."""

    told: tuple[tuple[int, dict[str, Any], tuple[float, ...]], ...]
    """Number, hyperparameters, and the scores (smaller is better) of each trial that is over. One without a score (its metric
    is missing or not finite, it failed, or its hyperparameters were refused) is told as worse than all with one, and left out
    as long as there is none."""
    open: tuple[dict[str, Any], ...]
    """Hyperparameters of trials that are still to report."""


def results_of(experiment: Experiment) -> Results:
    """Results of all trials whose hyperparameters the experiment remembers; scores are those at its longest rung."""
    scores: dict[int, tuple[float, ...]] = {number: (score,) for score, number in experiment.rungs[-1].best}
    if experiment.settings.goals:
        scores = {number: experiment.objectives[number] for number in scores if number in experiment.objectives}
    worst = worse_than(scores.values())
    told, waiting = [], []
    for number, text in sorted(experiment.memory.items()):
        trial = experiment.trials.get(number)
        if number not in scores and trial is not None and trial.active:
            waiting.append(json.loads(text))
        elif (values := scores.get(number, worst)) is not None:
            told.append((number, json.loads(text), values))
    return Results(tuple(told), tuple(waiting))


def worse_than(scores: Iterable[tuple[float, ...]]) -> tuple[float, ...] | None:
    """Finite values above all of these, goal by goal; None where there are none to be compared with."""
    goals = list(zip(*scores, strict=True))
    if not goals:
        return None
    largest = sys.float_info.max

    def above(values: tuple[float, ...]) -> float:
        high = max(values)
        margin = WORSE_BY * (high - min(values))
        return min(largest, max(high + margin, math.nextafter(high, math.inf)))

    return tuple(above(values) for values in goals)
