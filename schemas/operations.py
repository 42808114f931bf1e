"""Operations that a user's own searcher can ask for. They are part of the record: see `SearchOperationsRequested`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from tenuto.schemas.base import Model

OPERATIONS_MAX = 1_000
"""Most operations of one decision; the events that follow from them fit one append to the log."""
TEXT_CHARACTERS_MAX = 2_000
"""Most characters of an error: enough to see what is wrong, and small in the record."""


class Create(Model):
    """A new trial. The n-th Create of a search is trial number n; the trial starts when a place is free."""

    kind: Literal["create"] = "create"
    """Name of the operation in JSON."""
    hyperparameters: dict[str, Any] = {}
    """Hyperparameters of the trial, nested as in the configuration or with dotted names. Those left out are drawn from the
    search space."""
    length: int = Field(gt=0)
    """Train up to this length in total, in the unit of `searcher.max_length`; at most max_length."""
    source_checkpoint_id: str | None = None
    """Checkpoint that the trial begins from. None: it begins from nothing."""
    parent: int | None = Field(default=None, ge=1)
    """Number of the trial that this one is a copy of; recorded, without effect on training."""


class Extend(Model):
    """Train on, up to `length` in total. A trial that waits goes on when a place is free."""

    kind: Literal["extend"] = "extend"
    """Name of the operation in JSON."""
    trial: int = Field(ge=1)
    """Number of the trial, from 1."""
    length: int = Field(gt=0)
    """New length in total, in the unit of `searcher.max_length`; at most max_length."""


class Stop(Model):
    """The trial gets no more budget; it leaves at its next batch."""

    kind: Literal["stop"] = "stop"
    """Name of the operation in JSON."""
    trial: int = Field(ge=1)
    """Number of the trial, from 1."""


class Complete(Model):
    """The search is over: all trials that run or wait are stopped."""

    kind: Literal["complete"] = "complete"
    """Name of the operation in JSON."""


class Fail(Model):
    """The search has failed: all trials that run or wait are stopped."""

    kind: Literal["fail"] = "fail"
    """Name of the operation in JSON."""
    error: str = Field(min_length=1, max_length=TEXT_CHARACTERS_MAX)
    """Reason, for users: 1 to 2,000 characters."""


Operation = Annotated[Create | Extend | Stop | Complete | Fail, Field(discriminator="kind")]
"""Any of the operations: `Create`, `Extend`, `Stop`, `Complete` or `Fail`."""
OPERATIONS: TypeAdapter[tuple[Operation, ...]] = TypeAdapter(tuple[Operation, ...])
