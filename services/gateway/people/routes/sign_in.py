"""Sign-in with a password, its end, and passwords."""

from __future__ import annotations

import asyncio
import math
from uuid import uuid4

from fastapi import APIRouter, Request, Response

from tenuto.services.gateway.http import cookies, tokens
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked, asking_token
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.recorded_answers import record
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.bodies import LoginBody, PasswordBody
from tenuto.services.gateway.people.commands import RevokeToken, SetPassword, SignIn
from tenuto.services.gateway.people.door import Door, PeopleDoor
from tenuto.services.gateway.people.handling.paths import UserName
from tenuto.services.gateway.people.handling.sessions import NO_STORE, check_unlimited, session_end, session_seconds
from tenuto.services.gateway.people.views import SignedInView, WaysInView
from tenuto.services.gateway.rights.state import TOKEN_ID_CHARACTERS

router = APIRouter(tags=["users"], route_class=StrictRoute)
WRONG = "The name or the password is wrong."
"""Sentence for a wrong name or password: the same for a name that no user has, and after the same time."""


@router.get("/login", response_model=WaysInView)
async def ways_in(door: Door) -> Response:
    """Ways to sign in at this cluster; needs no token."""
    return answer(WaysInView(provider=door.sso is not None))


@router.post("/login", response_model=SignedInView, status_code=201)
async def login(request: Request, door: Door, body: LoginBody) -> Response:
    """Begins a session. Its token is shown in this answer only, or set as a cookie."""
    if body.cookie:
        cookies.check_origin(request.scope, door.settings)
    if body.new_password is not None:
        if body.new_password == body.password:
            raise DoorError("invalid", "new_password is the present one: choose another.", "new_password")
        await _check_strong(door, body.new_password, body.name, "new_password")
    password_id = await _compared(request, door, body)
    token = tokens.make()
    given, now_us = tokens.hash_of(f"Bearer {token}"), door.clock.now_us()
    expires_us = session_end(door, now_us)
    new_id = "" if body.new_password is None else str(uuid4())
    command = SignIn(
        id=door.clock.new_id(),
        time_us=now_us,
        user=body.name,
        password_id=password_id,
        token_hash=given,
        expires_us=expires_us,
        label=body.label or ("browser" if body.cookie else ""),
        new_password_id=new_id,
    )
    door.check(command)  # refuses before anything is kept
    if body.new_password is not None:
        await door.passwords.keep(new_id, body.new_password, now_us)
    await door.carry_out(command)
    if body.new_password is not None:
        await door.passwords.forget(password_id)
    view = SignedInView(
        name=body.name,
        admin=door.state.may_all(body.name),
        id=given[:TOKEN_ID_CHARACTERS],
        expires_us=expires_us,
        token=None if body.cookie else token,
    )
    response = answer(view, 201)
    response.headers.update(NO_STORE)
    if body.cookie:
        cookies.give(response, request.scope, door.settings, token, session_seconds(door))
    return response


@router.post("/logout", response_model=Recorded)
async def logout(request: Request, door: Door) -> Response:
    """Ends the session of this request."""
    shown = asking_token()
    if shown is None or not shown.session:
        what = "the cluster's own token" if shown is None else f"the token {shown.id}, which `tenuto user token revoke` ends"
        raise DoorError("conflict", f"There is no session to end: you use {what}.")
    response = await record(door, RevokeToken(**asked(door), owner=shown.user, token_id=shown.id))
    cookies.take_away(response, request.scope, door.settings)
    return response


@router.put("/users/{name}/password", response_model=Recorded)
async def set_password(door: Door, name: UserName, body: PasswordBody) -> Response:
    """Sets another user's password; the user has to choose a new one at the next sign-in. Users change theirs by `POST /login`
    with `new_password`."""
    check_unlimited()
    await _check_strong(door, body.password, name, "password")
    return await _replace(door, name, body.password)


@router.delete("/users/{name}/password", response_model=Recorded)
async def remove_password(door: Door, name: UserName) -> Response:
    """Removes a user's password: it no longer signs in, and all sessions end; tokens stay."""
    return await _replace(door, name, None)


async def _replace(door: PeopleDoor, name: str, password: str | None) -> Response:
    await door.users_known()
    before = door.state.users.get(name)
    command = SetPassword(**asked(door), name=name, password_id="" if password is None else str(uuid4()))
    door.check(command)
    if password is not None:
        await door.passwords.keep(command.password_id, password, command.time_us)
    response = await record(door, command)
    if before is not None and before.password_id:
        await door.passwords.forget(before.password_id)
    return response


async def _compared(request: Request, door: PeopleDoor, body: LoginBody) -> str:
    """Id of the password, which is right. Raises DoorError."""
    await door.users_known()
    address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
    if wait := door.throttle.begin(body.name, address, now):
        seconds = math.ceil(wait)
        raise DoorError(
            "too_many",
            f"Too many sign-ins of {body.name} or from your address have failed: try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )
    user = door.state.users.get(body.name)
    password_id = user.password_id if user is not None else ""
    if not await door.passwords.matches(password_id, body.password):
        raise DoorError("wrong_password", WRONG)
    door.throttle.forgive(body.name, address, now)
    return password_id


async def _check_strong(door: PeopleDoor, password: str, user: str, path: str) -> None:
    """Raises DoorError."""
    if why := await door.passwords.weakness(password, user):
        raise DoorError("invalid", why, path)
