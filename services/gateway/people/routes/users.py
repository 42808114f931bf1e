"""Users and their tokens, with the limits and the life of the tokens."""

from __future__ import annotations

from heapq import nsmallest
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from tenuto.schemas.base import from_object
from tenuto.schemas.events.request import NewUser
from tenuto.services.gateway.http import tokens
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked, asking, asking_token
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import next_page
from tenuto.services.gateway.http.recorded_answers import record
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.bodies import NewTokenBody, NewUserBody
from tenuto.services.gateway.people.commands import CreateToken, CreateUser, RemoveUser, RevokeToken
from tenuto.services.gateway.people.door import Door, PeopleDoor
from tenuto.services.gateway.people.handling.paths import UserName
from tenuto.services.gateway.people.handling.sessions import check_unlimited
from tenuto.services.gateway.people.views import NewTokenView, NewUserView, TokenView, UserView, WhoamiView
from tenuto.services.gateway.read_models.decision_rows import PAGE_MAX
from tenuto.services.gateway.rights.access import PERMISSIONS, role_permissions
from tenuto.services.gateway.rights.permissions import PermissionRule, refusal
from tenuto.services.gateway.rights.state import ADMIN, TOKEN_ID_CHARACTERS, Token, User

router = APIRouter(tags=["users"], route_class=StrictRoute)
DAY_US = 24 * 3600 * 1_000_000
FRESH_US = 15 * 60 * 1_000_000
"""Time after a sign-in during which the user counts as present, and a session can make tokens that outlive it."""
TokenId = Annotated[str, Path(pattern=rf"^[0-9a-f]{{{TOKEN_ID_CHARACTERS}}}$")]


@router.get("/user", response_model=WhoamiView)
async def whoami(door: Door) -> Response:
    """Owner of the token of this request, and its end."""
    name, token = asking(), asking_token()
    access, subject = door.state.access, door.subject()
    view = WhoamiView(
        name=name,
        admin=door.state.may_all(name),
        permissions=tuple(sorted(item for item in PERMISSIONS if not refusal(access, subject, PermissionRule(item)))),
        token=None if token is None else _view(token),
    )
    return answer(view)


@router.get("/users", response_model=list[UserView])
async def users(
    request: Request,
    door: Door,
    after: Annotated[str, Query(max_length=256, description="Name of the last one that you have.")] = "",
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = PAGE_MAX,
) -> Response:
    """Users by name, the admin first."""
    known = door.state.users
    names = nsmallest(limit + 1, (name for name in known if name > after))  # of ten thousand only these are looked at further
    found = [_user_view(known[name]) for name in names[:limit]]
    onward = next_page(request, after=names[limit - 1]) if len(names) > limit else {}
    return answer([*([] if after else [UserView(name=ADMIN, admin=True)]), *found], headers=onward)


@router.post("/users", response_model=NewUserView, status_code=201)
async def create(door: Door, body: NewUserBody) -> Response:
    """Makes a user and a token. This answer is the only place where the token is ever shown."""
    check_unlimited()
    token = tokens.make()
    expires_us = _expires_us(door, body.expires_days)
    given = tokens.hash_of(f"Bearer {token}")
    new = from_object(NewUser, body)
    command = CreateUser(**asked(door), new=new, token_hash=given, expires_us=expires_us)
    await door.users_known()
    async with door.secrets_change:
        door.check(command)  # refuses a name that is taken
        # Secrets of an earlier user of that name. Afterwards would be too late: an answer that is lost leaves a user who has
        # them.
        await door.forget_user(body.name)
    await record(door, command)
    return answer(NewUserView(**dict(new), token=token, expires_us=expires_us), 201)


@router.delete("/users/{name}", response_model=Recorded)
async def remove(door: Door, name: str) -> Response:
    """Removes a user: the tokens are no longer valid; the experiments go on."""
    user = door.state.users.get(name)
    response = await record(door, RemoveUser(**asked(door), name=name))
    if user is not None and user.password_id:
        await door.passwords.forget(user.password_id)
    return response


@router.get("/users/{name}/tokens", response_model=list[TokenView])
async def list_tokens(door: Door, name: UserName) -> Response:
    """Tokens of a user, the oldest first. Their values cannot be seen, as only hashes are kept."""
    if name != ADMIN and name not in door.state.users:
        raise not_found(f"user {name}")
    found = door.state.tokens_of(name)
    used = await door.token_uses.last([token.token_hash for token in found])
    return answer([_view(token, used.get(token.token_hash)) for token in found])


@router.post("/users/{name}/tokens", response_model=NewTokenView, status_code=201)
async def create_token(door: Door, name: UserName, body: NewTokenBody) -> Response:
    """One more token. This answer is the only place where it is ever shown."""
    if body.role is not None and body.permissions is not None:
        raise DoorError("invalid", "role and permissions exclude each other: name one of them.", "permissions")
    permissions = body.permissions
    if body.role is not None:
        permissions = tuple(sorted(role_permissions(door.state.access, body.role)))
        if not permissions:
            raise not_found(f"role {body.role}")
    limits: dict[str, Any] = {"permissions": permissions, "workspace": body.workspace or ""}
    return await _create(door, name, body.label, _expires_us(door, body.expires_days), **limits)


@router.post("/users/{name}/tokens/{token_id}/rotate", response_model=NewTokenView, status_code=201)
async def rotate(door: Door, name: UserName, token_id: TokenId) -> Response:
    """Replaces a token by a new one; the old one is no longer valid."""
    known = next((token for token in door.state.tokens_of(name) if token.id == token_id), None)
    return await _create(door, name, known.label if known else "", _expires_us(door, None), token_id)


@router.delete("/users/{name}/tokens/{token_id}", response_model=Recorded)
async def revoke(door: Door, name: UserName, token_id: TokenId) -> Response:
    return await record(door, RevokeToken(**asked(door), owner=name, token_id=token_id))


async def _create(
    door: PeopleDoor,
    owner: str,
    label: str,
    expires_us: int | None,
    replaces_id: str = "",
    **limits: Any,
) -> Response:
    token, shown = tokens.make(), asking_token()
    given = tokens.hash_of(f"Bearer {token}")
    command = CreateToken(
        **asked(door),
        owner=owner,
        token_hash=given,
        label=label,
        expires_us=expires_us,
        replaces_id=replaces_id,
        limited_to=None if shown is None else shown.permissions,
        shown_workspace="" if shown is None else shown.workspace,
        **limits,
    )
    await door.carry_out(command)
    made = door.state.tokens.get(given)
    view = NewTokenView(
        id=given[:TOKEN_ID_CHARACTERS],
        label=label,
        created_us=command.time_us,
        expires_us=expires_us,
        permissions=None if made is None else made.permissions,
        workspace=(made.workspace or None) if made is not None else None,
        token=token,
    )
    return answer(view, 201)


def _expires_us(door: PeopleDoor, days: float | None) -> int | None:
    """Expiry of a new token. Raises DoorError if a user who is no admin wants it to live longer than those of this cluster do, or
    longer than the token of the request: a token that was stolen, or made for a day, must not live on in others."""
    usual, now_us, shown = door.settings.token_days, door.clock.now_us(), asking_token()
    wanted = usual if days is None else days
    expires_us = now_us + int(wanted * DAY_US) if wanted else None
    if door.state.may_all(asking()) and (shown is None or not shown.is_limited):
        return expires_us
    if usual and (not wanted or wanted > usual):
        raise DoorError(
            "forbidden",
            f"Tokens of this cluster live for {usual:g} days at most (TENUTO_TOKEN_DAYS); ask an admin.",
            "expires_days",
        )
    end_us = shown.expires_us if shown is not None else None
    # A user who has just signed in does not merely hold a token that was found.
    if shown is not None and shown.session and now_us - shown.created_us < FRESH_US:
        return expires_us
    if end_us is None or (expires_us is not None and expires_us <= end_us):
        return expires_us
    if days is not None:
        raise DoorError(
            "forbidden",
            f"The token that you use ends in {(end_us - now_us) / DAY_US:.2f} days and makes none that ends later; "
            "sign in with your password (`tenuto login`), or ask an admin.",
            "expires_days",
        )
    return end_us


def _view(token: Token, used_us: int | None = None) -> TokenView:
    return from_object(TokenView, token, used_us=used_us, workspace=token.workspace or None)


def _user_view(user: User) -> UserView:
    return from_object(UserView, user)
