"""Stores of checkpoints, as the operator declared them: their names and places, never how they are entered."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.projections.views import StoreView
from tenuto.services.gateway.rest.context import Door, Gateway, answer
from tenuto.services.gateway.rest.strict import StrictRoute

router = APIRouter(tags=["checkpoints"], route_class=StrictRoute)


@router.get("/stores", response_model=list[StoreView])
async def stores(door: Door) -> Response:
    """Stores that `checkpoint_storage.store` may name."""
    found = await asyncio.to_thread(door.stores.definitions)
    return answer([StoreView(name=name, type=found[name].type, url=found[name].url) for name in sorted(found)])


async def check_store(door: Gateway, config: ExperimentConfig) -> None:
    """Raises ConfigError where nobody declared the store that the experiment names. Not in the threads that downloads use: a
    store that is away may hold all of them."""
    wanted, known = config.checkpoint_storage.store, sorted(await asyncio.to_thread(door.stores.definitions))
    if wanted not in known:
        message = f"there is no such store; there are {', '.join(known)}; the operator declares one with `tenuto store create`"
        raise ConfigError([Problem("checkpoint_storage.store", message, f'"{wanted}"')])
