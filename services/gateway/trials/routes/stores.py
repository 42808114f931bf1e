"""Stores of checkpoints that the operator declared: their names and places, never their credentials."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from tenuto.services.gateway.http.context import answer
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.door import Door
from tenuto.services.gateway.trials.views import StoreView

router = APIRouter(tags=["checkpoints"], route_class=StrictRoute)


@router.get("/stores", response_model=list[StoreView])
async def stores(door: Door) -> Response:
    """Stores that `checkpoint_storage.store` may name."""
    found = await asyncio.to_thread(door.stores.definitions)
    return answer([StoreView(name=name, type=found[name].type, url=found[name].url) for name in sorted(found)])
