"""The record inside each checkpoint, and the error about one that cannot be used."""

from __future__ import annotations

from typing import Any, Literal

from tenuto.schemas.base import Model
from tenuto.schemas.config import Unit
from tenuto.workers.errors import UserError

RECORD_FILE = "tenuto.json"
"""File in each checkpoint that holds its CheckpointRecord."""


class CheckpointRecord(Model):
    """Owner of a checkpoint, its position, and the validation that was made there."""

    format: Literal[1] = 1
    experiment_id: int
    trial_id: str
    batches: int
    length: int
    unit: Unit
    hyperparameters: dict[str, Any]
    trial_seed: int
    context_hash: str
    validation: dict[str, float] | None
    """Metrics of the validation. None: the position was not validated before it was saved."""


class UnusableCheckpoint(UserError):
    """A recorded checkpoint that cannot be resumed from: deleted, changed or unreachable."""
