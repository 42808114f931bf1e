"""Median stopping over a low-discrepancy sequence.

A trial is stopped at a part of its way if it is worse there than the median of the trials before it (Golovin et al., "Google
Vizier: A Service for Black-Box Optimization", KDD 2017, section 3.2.2). Configurations are points of the additive sequence R_d,
whose steps are the powers of 1/x with x**(d + 1) = x + 1 (Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences",
2018). Both are computed in whole numbers, so that every machine finds the same.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.config.ranges import BITS, value_at
from tenuto.schemas.events.search import TrialExtended, TrialStopped
from tenuto.services.searcher.methods.base import PluginRules, Proposal
from tenuto.services.searcher.methods.reasons import completed, metric_value
from tenuto.services.searcher.methods.sampling import draw_bits, drawn, fill, in_use, is_random, plan_of, sample
from tenuto.services.searcher.state import Experiment, Trial

FRACTION_BITS = 64


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parts: int = Field(default=3, ge=2, le=50)
    """Number of equal parts of max_length; a trial is compared between two of them."""
    grace: int = Field(default=4, ge=1, le=1000)
    """Number of trials that are compared at a part before one can be stopped there."""


class MedianStopping(PluginRules[Settings]):
    SETTINGS = Settings
    VERSIONS = ("1",)

    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        full, parts = self.settings.max_length.value, self.own.parts
        return (Bracket(self.trials_max, tuple(sorted({max(1, full * part // parts) for part in range(1, parts + 1)}))),)

    def best_max(self, trials: int) -> int:
        return trials  # the median is of all

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        number = experiment.requested + 1
        return self.chosen(self.hyperparameters(experiment.seed, number), f"its hyperparameters are point {number} of a lattice")

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        def draw(attempt: int) -> dict[str, Any]:
            if attempt:  # the point breaks a constraint
                return sample(self.space, seed, trial_number, attempt)
            return self._point(seed, trial_number)

        return drawn(self.settings, self.space, seed, trial_number, draw)

    def _point(self, seed: int, number: int) -> dict[str, Any]:
        known = dict(plan_of(self.space).leaves)
        axes = sorted(path for path, leaf in known.items() if is_random(leaf))
        values = {path: value_at(leaf, 0) for path, leaf in known.items() if not is_random(leaf)}
        for axis, path in enumerate(axes):
            shift = draw_bits(seed, 0, "lattice", path) >> (BITS - FRACTION_BITS)
            at = (shift + number * step(len(axes), axis)) % (1 << FRACTION_BITS)
            values[path] = value_at(known[path], at << (BITS - FRACTION_BITS))
        return fill(self.space, in_use(self.space, values))

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialStopped:
        if experiment.is_top(trial.rung):
            return completed(experiment, trial)
        if trial.key is None:
            return self.worst(experiment, trial)
        rung = experiment.rungs[trial.rung]
        before, better = rung.size - 1, rung.best.rank(trial.key)
        if before < self.own.grace:
            return self.extended(experiment, trial, f"only {before} came here before it, so it trains on")
        if 2 * better <= before:
            return self.extended(experiment, trial, f"{better} of the {before} before it are better, so it trains on")
        median = metric_value(experiment, rung.best[before // 2][0])
        return self.stopped(experiment, trial, f"worse than the median {median:.6g} of the {before} before it, so it is stopped")


@lru_cache(maxsize=1024)
def step(dimensions: int, axis: int) -> int:
    """Step of the sequence along an axis (from 0), in units of 2**-64."""
    low, high = 1 << FRACTION_BITS, 2 << FRACTION_BITS
    while high - low > 1:
        middle = (low + high) // 2
        above = middle ** (dimensions + 1) > (middle << FRACTION_BITS * dimensions) + (1 << FRACTION_BITS * (dimensions + 1))
        low, high = (low, middle) if above else (middle, high)
    return (1 << FRACTION_BITS * (axis + 2)) // int(low ** (axis + 1))
