"""Fields that all search methods have, and what the rest of Tenuto asks about a method."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.config.length import Length

CONCURRENT_TRIALS_MAX = 10_000
"""Most trials that one experiment may run at once."""
TRIALS_MAX = 1_000_000
"""Most trials of one experiment."""
CONSTRAINTS_MAX = 100
STARTING_POINTS_MAX = 1_000


class SourceCheckpointSettings(Model):
    """A checkpoint of any experiment. `source_checkpoint: ID` says the same as `{checkpoint_id: ID}`."""

    checkpoint_id: str = Field(min_length=1, max_length=256)
    """Id of the checkpoint, as shown by `tenuto ckpt ls`."""
    location: str = ""
    """Location of the checkpoint; filled in at submission."""
    batches: int = 0
    """Number of batches that the checkpoint was trained; filled in at submission."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        return {"checkpoint_id": value} if isinstance(value, str) else value


class SearcherBase(Model):
    """Its class variables are what the rest asks about a method."""

    ONE_TRIAL: ClassVar[bool] = False
    """There is one trial, which has slots, limits and an end as if it were the experiment."""
    POINTS_ARE_GIVEN: ClassVar[bool] = False
    """Every trial is a point of a table that the ranges make by their `count`: no other takes the place of one."""
    COMPARES_AT_RUNGS: ClassVar[bool] = False
    """Trials are compared on their way: `divisor`, `max_rungs` and `min_rung_length` say where."""
    MAX_TRIALS_CHANGES: ClassVar[bool] = False
    """`max_trials` can be changed while it runs. False: its trials are planned from the start."""
    DERIVES: ClassVar[bool] = False
    """A trial may begin with the weights of another one of the search."""
    DECIDED_OUTSIDE: ClassVar[bool] = False
    """A class of the user's decides, in a process outside the cluster."""
    SAMPLED: ClassVar[bool] = False
    """A sampler outside the pure rules proposes configurations."""

    metric: str = Field(min_length=1)
    """Name of the validation metric that the search compares."""
    smaller_is_better: bool = True
    """False: the larger the metric, the better."""
    max_length: Length
    """Full length of a trial. Its unit is the unit of every length of the experiment."""
    constraints: list[str] = Field(default=[], max_length=CONSTRAINTS_MAX)
    """Conditions on every trial's hyperparameters, such as `net.width * net.layers <= 4096`. A draw that breaks one is drawn
    again."""
    starting_points: list[dict[str, Any]] = Field(default=[], max_length=STARTING_POINTS_MAX)
    """Hyperparameters of the first trials. Those that a point leaves out are drawn as usual."""
    source_checkpoint: SourceCheckpointSettings | None = Field(default=None, exclude_if=lambda value: value is None)
    """Checkpoint whose weights every trial begins with, at batch 0 and with an optimizer of its own. A script finds it as
    `run.checkpoint.latest` and loads the weights itself."""

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        """Empty for a method that compares at no rungs."""
        return ()

    @property
    def goals(self) -> tuple[tuple[str, bool], ...]:
        """All metrics that it compares, with whether smaller is better; empty if it is one."""
        return ()


class ManyTrials(SearcherBase):
    max_trials: int = Field(ge=1, le=TRIALS_MAX)
    """Number of configurations tried in all."""
    max_concurrent_trials: int = Field(default=16, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once."""
