"""Links that open the page signed in, as `tenuto page` makes them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tenuto.services.gateway.http import cookies, tokens
from tenuto.services.gateway.http.context import answer, asking, asking_token
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.adapters.page_links import LINK_SECONDS
from tenuto.services.gateway.people.bodies import LinkBody
from tenuto.services.gateway.people.commands import SignInByLink
from tenuto.services.gateway.people.door import Door
from tenuto.services.gateway.people.handling.sessions import NO_STORE, session_end
from tenuto.services.gateway.people.views import LinkView, SignedInView
from tenuto.services.gateway.rights.state import TOKEN_ID_CHARACTERS

router = APIRouter(tags=["users"], route_class=StrictRoute)
USED = "This link was used already, or is older than a minute: `tenuto page` makes another."


@router.post("/login/links", response_model=LinkView, status_code=201)
async def make(door: Door) -> Response:
    """The code of a link to the page (`/#sign-in=CODE`), which signs in the same user, once, within a minute. For sessions and
    the cluster's own token only: a program's token may have fewer rights than a session."""
    shown = asking_token()
    if shown is not None and (not shown.session or shown.is_limited):
        raise DoorError(
            "forbidden",
            f"A program's token, such as {shown.id}, opens no page: sign in with `tenuto login`, or on the page itself.",
        )
    user = asking()
    ends_us = None if shown is None else shown.expires_us
    code = door.page_links.make(user, "" if shown is None else shown.token_hash, ends_us)
    until_us = door.clock.now_us() + int(LINK_SECONDS * 1_000_000)
    response = answer(LinkView(name=user, code=code, expires_us=until_us), 201)
    response.headers.update(NO_STORE)
    return response


@router.post("/login/link", response_model=SignedInView, status_code=201)
async def follow(request: Request, door: Door, body: LinkBody) -> Response:
    """Begins a browser's session, in a cookie, by a link. It ends no later than the one that the link was made from."""
    cookies.check_origin(request.scope, door.settings)
    link = door.page_links.take(body.code)
    if link is None:
        raise DoorError("wrong_password", USED)
    token, now_us = tokens.make(), door.clock.now_us()
    given = tokens.hash_of(f"Bearer {token}")
    ends = [end for end in (session_end(door, now_us), link.ends_us) if end is not None]
    expires_us = min(ends, default=None)
    command = SignInByLink(
        id=door.clock.new_id(),
        time_us=now_us,
        user=link.user,
        asked_by=link.asked_by,
        token_hash=given,
        expires_us=expires_us,
        label="browser",
    )
    await door.users_known()
    await door.carry_out(command)
    view = SignedInView(
        name=link.user,
        admin=door.state.may_all(link.user),
        id=given[:TOKEN_ID_CHARACTERS],
        expires_us=expires_us,
    )
    response = answer(view, 201)
    response.headers.update(NO_STORE)
    seconds = None if expires_us is None else max(1.0, (expires_us - now_us) / 1_000_000)
    cookies.give(response, request.scope, door.settings, token, seconds)
    return response
