"""What users ask of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig


@dataclass(frozen=True)
class SubmitExperiment:
    id: UUID
    time_us: int
    config: ExperimentConfig
    seed: int
    """The configured seed, or the one drawn for this submission."""
    context_hash: str
    context_size_bytes: int
    user: str


@dataclass(frozen=True)
class PauseExperiment:
    id: UUID
    time_us: int
    experiment_id: int


@dataclass(frozen=True)
class ResumeExperiment:
    id: UUID
    time_us: int
    experiment_id: int


@dataclass(frozen=True)
class CancelExperiment:
    id: UUID
    time_us: int
    experiment_id: int
    kill: bool = False


@dataclass(frozen=True)
class ChangeExperiment:
    """Fields that are "keep" stay as they are."""

    id: UUID
    time_us: int
    experiment_id: int
    priority: int | Literal["keep"] = "keep"
    weight: float | Literal["keep"] = "keep"
    max_slots: int | Literal["keep"] | None = "keep"


ExperimentCommand = PauseExperiment | ResumeExperiment | CancelExperiment | ChangeExperiment
GatewayCommand = SubmitExperiment | ExperimentCommand
