"""Which search method, and its settings. Each method's rules are in `services/searcher/methods/`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.length import Length

CONCURRENT_TRIALS_MAX = 10_000
"""More trials than this never run at once in one experiment."""
TRIALS_MAX = 1_000_000
"""Bound on the trials of one experiment."""


class _Searcher(Model):
    metric: str = Field(min_length=1)
    """Name of the validation metric that the search compares."""
    smaller_is_better: bool = True
    max_length: Length
    """Full length of a trial. Its unit is the unit of every length of the experiment."""


class SingleSearcher(_Searcher):
    """One trial with the given hyperparameters."""

    name: Literal["single"]


class RandomSearcher(_Searcher):
    """`max_trials` independent draws, each trained for `max_length`."""

    name: Literal["random"]
    max_trials: int = Field(ge=1, le=TRIALS_MAX)
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)


class GridSearcher(_Searcher):
    """Every combination: `count` points per range, each value of a categorical."""

    name: Literal["grid"]
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)


class AshaSearcher(_Searcher):
    """Asynchronous successive halving (Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020)."""

    name: Literal["asha"]
    max_trials: int = Field(ge=1, le=TRIALS_MAX)
    """n: configurations tried in all."""
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)
    divisor: int = Field(default=4, ge=2, le=100)
    """eta: one in `divisor` goes on to the next rung."""
    max_rungs: int = Field(default=5, ge=1, le=20)
    """Rung lengths are max_length / divisor**k; this bounds how many there are."""
    mode: Literal["promotion", "stopping"] = "promotion"
    """promotion: a trial waits at its rung and goes on when it is in the top 1/divisor (Algorithm 2 of the paper).
    stopping: a trial goes on at once unless it is outside the top 1/divisor of those seen so far."""


Searcher = Annotated[
    SingleSearcher | RandomSearcher | GridSearcher | AshaSearcher,
    Field(discriminator="name"),
]
