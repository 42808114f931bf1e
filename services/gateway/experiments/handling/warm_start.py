"""Finds the checkpoint that a search is to begin from, when its experiment is submitted."""

from __future__ import annotations

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.http.errors import DoorError

PATH = "searcher.source_checkpoint"


async def with_source(door: ExperimentsDoor, config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with the place of its `source_checkpoint`, as it is recorded. Raises ConfigError."""
    start = config.searcher.source_checkpoint
    if start is None:
        return config
    shown = f'"{start.checkpoint_id}"'
    found = await door.views.checkpoint(start.checkpoint_id)
    if found is not None:
        try:
            await door.check_seen(found.experiment_id)
        except DoorError:
            found = None
    if found is None or found.deleted_us is not None:
        why = "is deleted" if found is not None else "is not known"
        raise ConfigError([Problem(PATH, f"this checkpoint {why}; `tenuto ckpt ls` lists those that there are", shown)])
    resolved = start.model_copy(update={"location": found.location, "batches": found.batches})
    searcher = config.searcher.model_copy(update={"source_checkpoint": resolved})
    return config.model_copy(update={"searcher": searcher})
