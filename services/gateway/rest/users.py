"""Users: who may act with a token of their own."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tenuto.schemas.events.request import UserCreated, UserRemoved
from tenuto.services.gateway import token as tokens
from tenuto.services.gateway.bodies import NewUserBody, Recorded
from tenuto.services.gateway.rest.context import Door, answer, asking
from tenuto.services.gateway.rest.jobs import record
from tenuto.services.gateway.state import ADMIN
from tenuto.services.gateway.views import NewUserView, UserView

router = APIRouter(tags=["users"])


@router.get("/user", response_model=UserView)
async def whoami(door: Door) -> Response:
    """Who the token of this request belongs to."""
    name = asking()
    return answer(UserView(name=name, admin=door.loop.state.may_all(name)))


@router.get("/users", response_model=list[UserView])
async def users(door: Door) -> Response:
    state = door.loop.state
    found = [UserView(name=name, admin=state.users[name].admin) for name in sorted(state.users)]
    return answer([UserView(name=ADMIN, admin=True), *found])


@router.post("/users", response_model=NewUserView, status_code=201)
async def create(door: Door, body: NewUserBody) -> Response:
    """Makes a user and a token. This answer is the only place where the token is ever shown."""
    token = tokens.make()
    request = UserCreated(name=body.name, admin=body.admin, token_hash=tokens.hash_of(f"Bearer {token}"))
    await record(door, request)
    return answer(NewUserView(name=body.name, admin=body.admin, token=token), 201)


@router.delete("/users/{name}", response_model=Recorded)
async def remove(door: Door, name: str) -> Response:
    """Its token is worth nothing any more; its experiments go on."""
    return await record(door, UserRemoved(name=name))
