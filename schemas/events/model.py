"""The model registry. Owner: tracker. Stream: model/<name>."""

from __future__ import annotations

from typing import ClassVar

from tenuto.schemas.events.registry import EventData, event


class RegistryModel(EventData):
    OWNER: ClassVar[str] = "tracker"
    STREAM: ClassVar[str] = "model"

    name: str

    def stream_key(self) -> str:
        return self.name


@event("ModelVersionRegistered")
class ModelVersionRegistered(RegistryModel):
    model_version: int
    checkpoint_id: str
    trial_id: str
    user: str


@event("ModelVersionPromoted")
class ModelVersionPromoted(RegistryModel):
    model_version: int
    stage: str
    user: str
