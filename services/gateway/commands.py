"""What users ask of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.request import ClusterRequest, SearchOperationsRequested, TokenCreated
from tenuto.schemas.record import Origin, Parent


@dataclass(frozen=True, kw_only=True)
class _Asked:
    id: UUID
    time_us: int
    user: str

    @property
    def actor(self) -> str:
        """Who is recorded as the actor of the events."""
        return f"user:{self.user}"


@dataclass(frozen=True, kw_only=True)
class SubmitExperiment(_Asked):
    config: ExperimentConfig
    seed: int
    """The configured seed, or the one drawn for this submission."""
    context_hash: str
    context_size_bytes: int
    trace: str = ""
    origin: Origin | None = None
    parent: Parent | None = None


@dataclass(frozen=True, kw_only=True)
class PauseExperiment(_Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class ResumeExperiment(_Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class CancelExperiment(_Asked):
    experiment_id: int
    kill: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeExperiment(_Asked):
    """Fields that are "keep" stay as they are."""

    experiment_id: int
    priority: int | Literal["keep"] = "keep"
    weight: float | Literal["keep"] = "keep"
    max_slots: int | Literal["keep"] | None = "keep"
    pool: str = ""
    """Empty: it stays where it is."""
    max_trials: int | None = None
    max_concurrent_trials: int | None = None
    """None: they stay as they are."""


@dataclass(frozen=True, kw_only=True)
class MoveExperiment(_Asked):
    """To just before or just behind another experiment, whose priority it takes over."""

    experiment_id: int
    other_id: int
    behind: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOperations(_Asked):
    """What a user's own searcher decided on one event, as it will be recorded."""

    request: SearchOperationsRequested

    @property
    def experiment_id(self) -> int:
        return self.request.experiment_id


@dataclass(frozen=True, kw_only=True)
class ChangeCluster(_Asked):
    """What the request says, as it will be recorded, but for what stays as it is."""

    request: ClusterRequest
    stays: frozenset[str] = frozenset()
    """Fields of a ShareChanged or a PoolPolicyChanged that the user did not name."""


@dataclass(frozen=True, kw_only=True)
class ChangeTokens(_Asked):
    """Of one user: a new one, the end of one, or both."""

    owner: str
    created: TokenCreated | None = None
    revoked_id: str = ""
    """Empty: none."""


ExperimentCommand = PauseExperiment | ResumeExperiment | CancelExperiment | ChangeExperiment | MoveExperiment | RequestOperations
GatewayCommand = SubmitExperiment | ExperimentCommand | ChangeCluster | ChangeTokens
