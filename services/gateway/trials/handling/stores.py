"""Stores of checkpoints that a configuration names."""

from __future__ import annotations

import asyncio

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.trials.door import TrialsDoor


async def check_store(door: TrialsDoor, config: ExperimentConfig) -> None:
    """Raises ConfigError if the store that the experiment names is not declared. Runs outside the threads of downloads: an
    unreachable store may hold all of these."""
    wanted, known = config.checkpoint_storage.store, sorted(await asyncio.to_thread(door.stores.definitions))
    if wanted not in known:
        message = f"there is no such store; there are {', '.join(known)}; the operator declares one with `tenuto store create`"
        raise ConfigError([Problem("checkpoint_storage.store", message, f'"{wanted}"')])
