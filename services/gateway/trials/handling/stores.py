"""Stores of checkpoints that a configuration names."""

from __future__ import annotations

import asyncio

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.trials.door import TrialsDoor


async def check_store(door: TrialsDoor, config: ExperimentConfig) -> None:
    """Raises ConfigError where nobody declared the store that the experiment names. Not in the threads that downloads use: a
    store that is away may hold all of them."""
    wanted, known = config.checkpoint_storage.store, sorted(await asyncio.to_thread(door.stores.definitions))
    if wanted not in known:
        message = f"there is no such store; there are {', '.join(known)}; the operator declares one with `tenuto store create`"
        raise ConfigError([Problem("checkpoint_storage.store", message, f'"{wanted}"')])
