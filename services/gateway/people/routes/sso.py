"""Sign-in at a provider of identities: the redirect there, the return, and the session of a command line that waits."""

from __future__ import annotations

import html
import logging
from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from tenuto.services.gateway.http import cookies, tokens
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.recorded_answers import record
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.adapters.identity_provider import SsoAway, SsoRefused
from tenuto.services.gateway.people.adapters.sso_visits import FLOW_SECONDS, Sso
from tenuto.services.gateway.people.bodies import SsoTokenBody
from tenuto.services.gateway.people.commands import LinkUser, SignInAtProvider
from tenuto.services.gateway.people.door import Door, PeopleDoor
from tenuto.services.gateway.people.handling.paths import UserName
from tenuto.services.gateway.people.handling.sessions import NO_STORE, check_unlimited, session_end, session_seconds
from tenuto.services.gateway.people.policies.identity import NoIdentity, ProviderIdentity, identity
from tenuto.services.gateway.people.views import SignedInView
from tenuto.services.gateway.rights.state import TOKEN_ID_CHARACTERS

logger = logging.getLogger(__name__)
router = APIRouter(tags=["users"], route_class=StrictRoute)
CALLBACK = "/api/v1/sso/callback"
STRANGE = "This sign-in was not begun in this browser, was begun too long ago, or is over: begin it again."
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    **NO_STORE,
}
_CALLBACK: dict[int | str, dict[str, Any]] = {
    200: {"description": "The page with the code of a command line.", "content": {"text/html": {}}}
}
Challenge = Annotated[str, Query(pattern=r"^([A-Za-z0-9_-]{43})?$")]
Port = Annotated[int, Query(ge=0, le=65_535)]
Word = Annotated[str, Query(max_length=4_096)]


@router.get("/sso", status_code=302, response_class=RedirectResponse)
async def begin(request: Request, door: Door, challenge: Challenge = "", port: Port = 0) -> Response:
    """Sends a browser to the provider of identities. `challenge`: that of a command line that waits for the session (S256 of its
    verifier); `port`: where it listens on the browser's machine."""
    sso = _sso(door)
    flow = sso.begin(challenge, port)
    address = await _asked(sso.provider.address(_callback(request, door), flow.state, flow.nonce, flow.verifier))
    response = RedirectResponse(address, 302, headers=NO_STORE)
    cookies.give_flow(response, request.scope, door.settings, sso.sealed(flow), FLOW_SECONDS)
    return response


@router.get("/sso/callback", status_code=303, response_class=RedirectResponse, responses=_CALLBACK)
async def come_back(
    request: Request,
    door: Door,
    state: Word = "",
    code: Word = "",
    error: Word = "",
    error_description: Word = "",
    error_uri: Word = "",
    iss: Word = "",
    session_state: Word = "",
    scope: Word = "",
    authuser: Word = "",
    prompt: Word = "",
    hd: Word = "",
) -> Response:
    """Takes the browser back from the provider. Begins its session, or shows the code for the command line that waits. Parameters
    that providers add beside `state`, `code`, `error` and `iss` are ignored."""
    sso = _sso(door)
    flow = sso.opened(cookies.flow_of(request.scope), state)
    if flow is None or iss not in ("", sso.provider.issuer):
        raise DoorError("sso_refused", STRANGE)
    if error or not code:
        word = error if error.replace("_", "").isalnum() and len(error) <= 40 else "without a reason"
        raise DoorError("sso_refused", f"The provider of identities refused the sign-in ({word}): begin it again.")
    async with sso.asking:
        claims = await _asked(sso.provider.claims(code, _callback(request, door), flow.nonce, flow.verifier))
    settings = door.settings
    try:
        who = identity(claims, sso.provider.issuer, settings.oidc_user_claim, settings.oidc_groups_claim)
    except NoIdentity as refused:
        raise DoorError("forbidden", str(refused)) from None
    await door.users_known()
    if flow.challenge:
        door.check(_command(door, who, "0" * 64, ""))  # refuses before a code is shown
        response: Response = _page(_name(door, who), sso.hand_out(who, flow.challenge), flow.challenge, flow.port)
    else:
        token, _ = await _session(door, who, "browser")
        response = RedirectResponse("/", 303, headers=NO_STORE)
        cookies.give(response, request.scope, settings, token, session_seconds(door))
    cookies.take_flow_away(response, request.scope, settings)
    return response


@router.post("/sso/token", response_model=SignedInView, status_code=201)
async def take(door: Door, body: SsoTokenBody) -> Response:
    """The session of a command line, for the code that its user's browser was shown."""
    sso = _sso(door)
    who = sso.take(body.code, body.verifier)
    if who is None:
        raise DoorError("sso_refused", "The code is wrong, too old, or of another sign-in: begin it again.")
    await door.users_known()
    token, view = await _session(door, who, body.label)
    response = answer(view.model_copy(update={"token": token}), 201)
    response.headers.update(NO_STORE)
    return response


@router.put("/users/{name}/link", response_model=Recorded)
async def link(door: Door, name: UserName) -> Response:
    """Links the user to the next identity that the provider sends with this name; the link stays if that identity's name
    changes."""
    check_unlimited()
    return await record(door, LinkUser(**asked(door), name=name))


async def _session(door: PeopleDoor, who: ProviderIdentity, label: str) -> tuple[str, SignedInView]:
    """(token of the session, its view). Raises Refused."""
    token = tokens.make()
    command = _command(door, who, tokens.hash_of(f"Bearer {token}"), label)
    async with door.secrets_change:
        # Raises a refusal before anything is forgotten; `carry_out` decides again, for the record.
        door.check(command)
        if command.user not in door.state.users:
            await door.secrets.forget(command.user)  # of an earlier user of that name
    await door.carry_out(command)
    view = SignedInView(
        name=command.user,
        admin=door.state.may_all(command.user),
        id=command.token_hash[:TOKEN_ID_CHARACTERS],
        expires_us=command.expires_us,
    )
    return token, view


def _command(door: PeopleDoor, who: ProviderIdentity, token_hash: str, label: str) -> SignInAtProvider:
    now_us = door.clock.now_us()
    return SignInAtProvider(
        id=door.clock.new_id(),
        time_us=now_us,
        user=_name(door, who),
        subject=who.subject,
        groups=who.groups,
        may_create=bool(door.settings.oidc_create_users),
        token_hash=token_hash,
        expires_us=session_end(door, now_us),
        label=label,
    )


def _name(door: PeopleDoor, who: ProviderIdentity) -> str:
    """The name here: a linked user keeps it, whatever the provider says."""
    return door.state.linked(who.subject) or who.name


def _sso(door: PeopleDoor) -> Sso:
    if door.sso is None:
        raise DoorError("not_found", "This cluster has no provider of identities: sign in with a password (`tenuto login`).")
    return door.sso


def _callback(request: Request, door: PeopleDoor) -> str:
    """Address to which the provider sends the browser back. Raises DoorError."""
    if door.settings.public_url:
        return door.settings.public_url.rstrip("/") + CALLBACK
    host = request.headers.get("host", "")
    if not cookies.never_another(host, door.settings):
        raise DoorError("invalid", "The operator has not told under which address this cluster is reached (TENUTO_PUBLIC_URL).")
    return f"{request.url.scheme}://{host}{CALLBACK}"


T = TypeVar("T")


async def _asked(question: Awaitable[T]) -> T:
    """Raises DoorError."""
    try:
        return await question
    except SsoRefused as error:
        raise DoorError("sso_refused", str(error)) from None
    except SsoAway as error:
        logger.warning("sign-in at the provider of identities failed: %s", error.detail)
        raise DoorError("unavailable", str(error)) from None


def _page(name: str, code: str, challenge: str, port: int) -> Response:
    """Page that asks before the code is sent to the command line: an attacker may have given the user the address, and wait for
    the session."""
    word = check_word(challenge)
    there = (
        f'<p><a href="http://127.0.0.1:{port}/?code={html.escape(code)}">Go on to the command line on this machine</a></p>'
        if port
        else ""
    )
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tenuto: sign in</title>'
        f"<h1>Sign in as {html.escape(name)} on the command line?</h1>"
        f"<p>Only if <code>tenuto login --sso</code>, which you started yourself, shows the word <b>{word}</b>.</p>"
        f"{there}<p>Or type this code there: <code>{html.escape(code)}</code></p></html>"
    )
    return HTMLResponse(text, headers=PAGE_HEADERS)


def check_word(challenge: str) -> str:
    return f"{challenge[:4]}-{challenge[4:8]}"
