"""Machines that join the cluster as agents, by tokens that admins make, and agents that are revoked."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Path, Request, Response

from tenuto.kernel.core import Refused
from tenuto.schemas.base import from_object
from tenuto.schemas.join_tokens import JoinToken
from tenuto.schemas.joining import TOKEN_ID_PATTERN, JoinBody, JoinedView, StandingBody, StandingView, hash_of
from tenuto.schemas.names import AGENT_NAME_PATTERN
from tenuto.services.gateway.cluster.adapters.bus_keeper import BusKeeper, BusNotTold
from tenuto.services.gateway.cluster.bodies import NewJoinTokenBody
from tenuto.services.gateway.cluster.commands import CreateJoinToken, Enroll, RevokeAgent, RevokeJoinToken
from tenuto.services.gateway.cluster.door import ClusterDoor, Door
from tenuto.services.gateway.cluster.policies.joining import IssuedJoinToken
from tenuto.services.gateway.cluster.views import JoinTokenView, NewJoinTokenView
from tenuto.services.gateway.http import tokens
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute

router = APIRouter(tags=["agents"], route_class=StrictRoute)
SECOND_US = 1_000_000
NO_STORE = {"Cache-Control": "no-store"}
TokenId = Annotated[str, Path(pattern=TOKEN_ID_PATTERN)]
AgentId = Annotated[str, Path(pattern=AGENT_NAME_PATTERN)]


@router.get("/join-tokens", response_model=list[JoinTokenView])
async def join_tokens(door: Door) -> Response:
    """Tokens that were not revoked, the newest first. Expired ones are shown until another is made."""
    await door.users_known()
    known = door.state.joining.tokens
    return answer([_view(token) for token in sorted(known.values(), key=lambda item: (-item.created_us, item.token_id))])


@router.post("/join-tokens", response_model=NewJoinTokenView, status_code=201)
async def create(request: Request, door: Door, body: NewJoinTokenBody) -> Response:
    """Makes a token by which machines join a pool. This answer is the only place where it is ever shown."""
    _keeper(door)
    secret, common = tokens.make(), asked(door)
    token_id = f"jt-{uuid4().hex[:12]}"
    command = CreateJoinToken(
        **common,
        token_id=token_id,
        secret_hash=hash_of(secret),
        pool=body.pool,
        expires_us=common["time_us"] + body.expires_seconds * SECOND_US,
        uses_max=body.uses_max,
        label=body.label,
    )
    await door.carry_out(command)
    url = (body.url or door.settings.public_url or str(request.base_url)).rstrip("/")
    token = JoinToken(url=url, fingerprint=door.fingerprint, id=token_id, secret=secret)
    view = NewJoinTokenView(**dict(_view(door.state.joining.tokens[token_id])), url=url, token=token.written())
    return answer(view, 201, headers=NO_STORE)


@router.delete("/join-tokens/{token_id}", response_model=Recorded)
async def revoke_token(door: Door, token_id: TokenId) -> Response:
    """No more agents join by it. Those that did stay."""
    events = await door.carry_out(RevokeJoinToken(**asked(door), token_id=token_id))
    return answer(Recorded(position=events[-1].position))


@router.post("/agents/join", response_model=JoinedView, status_code=201)
async def join(request: Request, door: Door, body: JoinBody) -> Response:
    """Gives an agent credentials of its own on the bus. No token of the REST interface is asked for, but a join token in the
    body."""
    keeper = _keeper(door)
    await door.users_known()
    credential_hash = hash_of(body.password)
    async with _guessing(request, door):
        held = await _held(keeper, body.agent_id)
        command = Enroll(
            id=door.clock.new_id(),
            time_us=door.clock.now_us(),
            token_id=body.token_id,
            secret_hash=hash_of(body.secret),
            agent_id=body.agent_id,
            credential_hash=credential_hash,
            taken=held is not None and body.agent_id not in door.state.joining.agents,
        )
        await door.carry_out(command)
    async with _telling():
        await keeper.admit(body.agent_id, body.password)
    member = door.state.joining.agents[body.agent_id]
    if not door.state.joining.knows(body.agent_id, credential_hash):  # revoked meanwhile
        async with _telling():
            await keeper.remove(body.agent_id)
        raise DoorError("unauthorized", f"Agent {body.agent_id} was revoked while it joined.")
    nats_url = door.settings.nats_public_url or door.settings.nats_url
    view = JoinedView(agent_id=member.agent_id, pool=member.pool, nats_url=nats_url, nats_ca=door.nats_ca)
    return answer(view, 201, headers=NO_STORE)


@router.post("/agents/standing", response_model=StandingView)
async def standing(request: Request, door: Door, body: StandingBody) -> Response:
    """True if the agent with this password still belongs to the cluster. An agent asks after the bus has refused it."""
    address = request.client.host if request.client else ""
    if wait := door.standing_pace.take(address, body.agent_id, asyncio.get_running_loop().time()):
        seconds = math.ceil(wait)
        raise DoorError(
            "too_many",
            f"Too many questions about agents came from your address: ask again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )
    await door.users_known()
    joined = door.state.joining.knows(body.agent_id, body.credential_hash)
    member = door.state.joining.agents.get(body.agent_id)
    if not joined and (member is None or not member.revoked):  # its present credentials came from the operator, if any
        joined = hmac.compare_digest(await _held(_keeper(door), body.agent_id) or "", body.credential_hash)
    return answer(StandingView(joined=joined))


@router.delete("/agents/{agent_id}", response_model=Recorded)
async def revoke(door: Door, agent_id: AgentId) -> Response:
    """Takes the agent's credentials away: its connections to the bus are closed, what it runs is lost and goes on elsewhere, and
    nothing that it sends is believed any more."""
    keeper = _keeper(door)
    held = await _held(keeper, agent_id)
    events = await door.carry_out(RevokeAgent(**asked(door), agent_id=agent_id, has_credentials=held is not None))
    async with _telling():
        await keeper.remove(agent_id)
    return answer(Recorded(position=events[-1].position))


def _keeper(door: ClusterDoor) -> BusKeeper:
    """Raises DoorError."""
    if door.keeper is None:
        raise DoorError(
            "conflict",
            "The gateway of this cluster cannot change the bus's users: set its TENUTO_BUS_USERS_DIRECTORY, or use `tenuto agent "
            "credentials` and `tenuto agent revoke` with --users.",
        )
    return door.keeper


@asynccontextmanager
async def _guessing(request: Request, door: ClusterDoor) -> AsyncIterator[None]:
    """Counts a wrong secret against its address, and refuses an address that has sent too many. Raises DoorError."""
    address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
    if wait := door.join_throttle.begin(address, address, now):
        seconds = math.ceil(wait)
        raise DoorError(
            "too_many",
            f"Too many wrong join tokens came from your address: try again in {seconds} s.",
            headers={"Retry-After": str(seconds)},
        )
    try:
        yield
    except Refused as refused:
        if refused.code != "unauthorized":  # the secret was right
            door.join_throttle.forgive(address, address, now)
        raise
    door.join_throttle.forgive(address, address, now)


@asynccontextmanager
async def _telling() -> AsyncIterator[None]:
    """Raises DoorError."""
    try:
        yield
    except BusNotTold as error:
        raise DoorError("unavailable", str(error)) from error
    except OSError as error:
        raise DoorError("unavailable", f"The bus's users cannot be written: {error.strerror or error}.") from error


async def _held(keeper: BusKeeper, agent_id: str) -> str | None:
    """SHA-256 of the agent's password; None: it has no credentials. Raises DoorError."""
    async with _telling():
        return await keeper.password_hash(agent_id)


def _view(token: IssuedJoinToken) -> JoinTokenView:
    return from_object(JoinTokenView, token, id=token.token_id)
