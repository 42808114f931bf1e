"""Secrets of the user of the request: set, listed by name, removed. No answer ever has a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.kernel.secrets import PER_USER_MAX
from tenuto.schemas.config.environment import SECRET_NAME_PATTERN
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.bodies import SecretBody
from tenuto.services.gateway.people.commands import NoteSecretKey
from tenuto.services.gateway.people.door import Door
from tenuto.services.gateway.people.views import SecretKeyView, SecretView

router = APIRouter(tags=["secrets"], route_class=StrictRoute)
SecretName = Annotated[str, Path(pattern=SECRET_NAME_PATTERN)]


@router.get("/secrets", response_model=list[SecretView])
async def list_secrets(door: Door) -> Response:
    """Names of your own secrets."""
    return answer([SecretView(name=item.name, updated_us=item.updated_us) for item in await door.secrets.names(asking())])


@router.put("/secrets/{name}", response_model=SecretView)
async def put(door: Door, name: SecretName, body: SecretBody) -> Response:
    """Sets a secret of your own, or replaces it: workers that start from now on have the new value."""
    async with door.secrets_change:
        door.check_still_there()
        known = [item.name for item in await door.secrets.names(asking())]
        if name not in known and len(known) >= PER_USER_MAX:
            raise DoorError("conflict", f"You have {PER_USER_MAX} secrets, and no more are kept; remove one.")
        now_us = door.clock.now_us()
        await door.secrets.set(asking(), name, body.value, now_us)
    return answer(SecretView(name=name, updated_us=now_us))


@router.post("/secrets/rotate-key", response_model=SecretKeyView)
async def rotate_key(door: Door) -> Response:
    """Seals all users' secrets and webhooks' targets with a new key, and forgets the old one. For admins. If it is interrupted,
    the next request finishes it."""
    async with door.secrets_change:
        changed = await door.secrets.change_key()
    command = NoteSecretKey(
        id=door.clock.new_id(),
        time_us=door.clock.now_us(),
        user=asking(),
        secrets=changed.secrets,
        unreadable=changed.unreadable,
    )
    [event] = await door.carry_out(command)
    return answer(SecretKeyView(secrets=changed.secrets, unreadable=changed.unreadable, position=event.position))


@router.delete("/secrets/{name}", response_model=list[SecretView])
async def remove(door: Door, name: SecretName) -> Response:
    """Removes a secret; answers with those that are left."""
    if not await door.secrets.remove(asking(), name):
        raise not_found(f"secret {name}")
    return await list_secrets(door)
