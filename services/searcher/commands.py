"""Orders to the searcher from its own shell. They are not in the log; what is decided because of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tenuto.schemas.ids import name_id


@dataclass(frozen=True)
class ProposeTrial:
    """The next trial of an experiment whose configurations come from a sampler outside the pure rules (`methods/sampled.py`)."""

    experiment_id: int
    trial_number: int
    hyperparameters: dict[str, Any]
    sampler: str
    """Name and version of what proposed it."""
    results: int
    """Number of results that it was based on."""
    time_us: int = 0

    @property
    def id(self) -> UUID:
        """One proposal per trial: the same again, or another one for the same trial, is never carried out twice."""
        return name_id("proposal", str(self.experiment_id), str(self.trial_number))


@dataclass(frozen=True)
class GiveUp:
    """No sampler will ever propose the next trial of this experiment: it fails, once its other trials are finished."""

    experiment_id: int
    error: str
    """Message for the user: what, why, and what to do."""
    time_us: int = 0

    @property
    def id(self) -> UUID:
        return name_id("give-up", str(self.experiment_id))
