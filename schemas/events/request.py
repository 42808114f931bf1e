"""What users ask for. Owner: gateway. Stream: request/<experiment>."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.registry import EventData, event


class Request(EventData):
    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "request"

    experiment_id: int

    def stream_key(self) -> str:
        return str(self.experiment_id)


@event("ExperimentSubmitted")
class ExperimentSubmitted(Request):
    config: ExperimentConfig
    seed: int = Field(ge=0, lt=2**63)
    """The experiment's seed: the configured one, or the one drawn by the gateway at submission."""
    context_hash: str
    """SHA-256 (hex) of the packed model directory."""
    context_size_bytes: int
    user: str


@event("ExperimentPauseRequested")
class ExperimentPauseRequested(Request):
    pass


@event("ExperimentResumeRequested")
class ExperimentResumeRequested(Request):
    pass


@event("ExperimentCancelRequested")
class ExperimentCancelRequested(Request):
    kill: bool = False
    """True: workers are killed at once. False: they save a checkpoint first."""


@event("ExperimentPriorityChanged")
class ExperimentPriorityChanged(Request):
    priority: int = Field(ge=1, le=99)


@event("ExperimentWeightChanged")
class ExperimentWeightChanged(Request):
    weight: float = Field(gt=0)


@event("ExperimentSlotLimitChanged")
class ExperimentSlotLimitChanged(Request):
    max_slots: int | None = Field(ge=1)
    """None: no limit."""
