"""What a user's own searcher can ask for. Part of the record: see `SearchOperationsRequested`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model

OPERATIONS_MAX = 1_000
"""Of one decision: so that what follows fits one append of the log."""
TEXT_CHARACTERS_MAX = 2_000
"""Of an error: enough to see what is wrong, and small in the record."""


class Create(Model):
    """A new trial. The n-th Create of a search is trial number n; it starts when a place is free."""

    kind: Literal["create"] = "create"
    hyperparameters: dict[str, Any] = {}
    """Nested as in the configuration, or with dots. What is left out is drawn from the search space."""
    length: int = Field(gt=0)
    """Train up to this length in total, in the unit of `searcher.max_length`; at most max_length."""
    source_checkpoint_id: str | None = None
    """Begin from this checkpoint instead of from nothing."""
    parent: int | None = Field(default=None, ge=1)
    """Number of the trial that it is a copy of, for the record."""


class Extend(Model):
    """Train on, up to `length` in total. A trial that waits goes on when a place is free."""

    kind: Literal["extend"] = "extend"
    trial: int = Field(ge=1)
    length: int = Field(gt=0)


class Stop(Model):
    """The trial gets no more budget; it leaves at its next batch."""

    kind: Literal["stop"] = "stop"
    trial: int = Field(ge=1)


class Complete(Model):
    """The search is over: whatever runs or waits is stopped."""

    kind: Literal["complete"] = "complete"


class Fail(Model):
    """The search failed: whatever runs or waits is stopped."""

    kind: Literal["fail"] = "fail"
    error: str = Field(min_length=1, max_length=TEXT_CHARACTERS_MAX)


Operation = Annotated[Create | Extend | Stop | Complete | Fail, Field(discriminator="kind")]
