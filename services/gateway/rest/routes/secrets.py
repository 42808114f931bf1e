"""Secrets of the user who asks: set, listed by name, removed. No answer ever has a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.kernel.secrets import PER_USER_MAX
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.environment import SECRET_NAME_PATTERN
from tenuto.schemas.config.errors import ConfigError, Problem
from tenuto.services.gateway.commands import NoteSecretKey
from tenuto.services.gateway.rest.bodies import SecretBody
from tenuto.services.gateway.rest.context import Door, Gateway, answer, asking
from tenuto.services.gateway.rest.errors import DoorError, not_found
from tenuto.services.gateway.rest.strict import StrictRoute
from tenuto.services.gateway.rest.user_views import SecretKeyView, SecretView

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
    """Seals all users' secrets and webhooks' targets with a new key, and forgets the old one. For admins. What was broken off is
    done by the next request."""
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
    """Answers with those that are left."""
    if not await door.secrets.remove(asking(), name):
        raise not_found(f"secret {name}")
    return await list_secrets(door)


async def with_owner(door: Gateway, config: ExperimentConfig) -> ExperimentConfig:
    """The configuration with its secrets as recorded: `user/name`. Raises ConfigError for those that the user has not."""
    wanted = {f"secrets.{variable}": reference for variable, reference in config.environment.secrets.items()}
    if config.environment.registry_auth is not None:
        wanted["registry_auth"] = config.environment.registry_auth
    if not wanted:
        return config
    user = asking()
    known = {item.name for item in await door.secrets.names(user)}
    problems = []
    for field, reference in wanted.items():
        owner, _, name = reference.rpartition("/")
        if owner not in ("", user):
            why = f"{name} is {owner}'s secret; set your own with `tenuto secret set {name}`, and name it here"
            problems.append(Problem(f"environment.{field}", why))
        elif name not in known:
            why = f"you have no secret {name}; `tenuto secret set {name}` makes it"
            problems.append(Problem(f"environment.{field}", why))
    if problems:
        raise ConfigError(problems)
    own = {field: f"{user}/{reference.rpartition('/')[2]}" for field, reference in wanted.items()}
    secrets = {variable: own[f"secrets.{variable}"] for variable in config.environment.secrets}
    environment = config.environment.model_copy(update={"secrets": secrets, "registry_auth": own.get("registry_auth")})
    return config.model_copy(update={"environment": environment})
