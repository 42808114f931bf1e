"""Operations that the search asks of a script, and numbers that a script reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.schemas import reports
from tenuto.schemas.config import Unit
from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names


@dataclass(frozen=True)
class Operation:
    """A training that the search asks for: train until `steps` steps in all, validate there, report."""

    steps: int
    """Steps to train in all, since the trial began."""
    length: int
    """The same length in the unit of `searcher.max_length`."""
    unit: Unit
    """Unit of `length`: batches or epochs."""

    def __getattr__(self, name: str) -> Any:
        raise determined_names.missing(determined_names.OPERATION, "operation", name)


def numbers_of(what: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that were given to `run.WHAT`, as numbers. Raises UserError."""
    values: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            values[str(name)] = float(value)
        except (TypeError, ValueError):
            raise UserError(f"run.{what}: metric {name!r} is {value!r}; metrics are numbers.") from None
    if why := reports.metrics_refusal(values):
        raise UserError(f"run.{what}: {why}.")
    return values
