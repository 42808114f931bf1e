"""Sign-in at a real provider of identities: django-oauth-toolkit, as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from tenuto.services.gateway.people.adapters import identity_provider
from tenuto.services.gateway.people.adapters.sso_visits import challenge_of
from tests.support.gateway_world import World, gateway_world
from tests.support.identities import IdP, known_to, running, told
from tests.support.ports import closed_port

CLIENT_ID, SECRET = "tenuto", "client-secret-of-a-test"
USERS = {"Ada": ("pw of ada", ["research", "vision"]), "eve": ("pw of eve", []), "bo b": ("pw of bob", [])}
VERIFIER = "v" * 64


@pytest.fixture(scope="module")
def idp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdP]:
    with running(tmp_path_factory.mktemp("idp"), CLIENT_ID, SECRET, USERS) as found:
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the provider takes its time."""
    monkeypatch.setattr(identity_provider, "TIMEOUT_SECONDS", 60.0)


@pytest.fixture
async def world(database: Any, tmp_path: Path, idp: IdP) -> AsyncIterator[World]:
    secret = tmp_path / "client-secret"
    secret.write_text(SECRET)
    settings = {
        "oidc_issuer": idp.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret_file": str(secret),
        "oidc_scopes": "openid profile",
        "oidc_create_users": 1,
    }
    async with gateway_world(database, tmp_path, **settings) as found:
        await known_to(idp, found)
        yield found


async def at_provider(world: World, name: str, **query: Any) -> tuple[httpx.AsyncClient, str]:
    """(the user's browser, the address that the provider sends it back to)."""
    # Without kept connections: none is left open.
    browser = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
    response = await browser.get(f"{world.http.base_url}/api/v1/sso".replace("//api", "/api"), params=query)
    assert response.status_code == 302, response.text
    response = await browser.get(response.headers["location"], follow_redirects=True)
    assert response.text == "who are you?"
    response = await browser.post(str(response.url), data={"username": name, "password": USERS[name][0]})
    assert response.status_code == 302
    response = await browser.get(httpx.URL(response.url).join(response.headers["location"]))
    assert response.status_code == 302, response.text
    return browser, response.headers["location"]


async def signs_in(world: World, name: str, **query: Any) -> tuple[httpx.AsyncClient, httpx.Response]:
    browser, back = await at_provider(world, name, **query)
    return browser, await browser.get(back)


def sentence(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


async def test_who_the_provider_knows_is_a_user_here_and_who_is_removed_stays_out(world: World, idp: IdP) -> None:
    browser, done = await signs_in(world, "Ada")
    assert done.status_code == 303, done.text
    assert done.headers["location"] == "/"
    assert "HttpOnly" in done.headers["set-cookie"]
    base = str(world.http.base_url).rstrip("/")
    assert (await browser.get(f"{base}/api/v1/user")).json()["name"] == "ada"
    state = world.service.loop.state
    assert state.users["ada"].groups == ("research", "vision")
    assert state.users["ada"].subject == f"{idp.issuer} 1"
    assert not state.users["ada"].admin

    await told(idp, "groups", json.dumps({"name": "Ada", "groups": ["vision"]}).encode())
    await signs_in(world, "Ada")
    assert world.service.loop.state.users["ada"].groups == ("vision",), "as the provider tells at each sign-in"

    # A password of the same name is another matter; a name that somebody has is nobody else's.
    await world.http.post("/api/v1/users", json={"name": "eve"})
    _, refused = await signs_in(world, "eve")
    assert refused.status_code == 403
    assert "signs in otherwise" in sentence(refused)
    assert (await world.http.put("/api/v1/users/eve/link", json={})).status_code == 200
    _, done = await signs_in(world, "eve")
    assert done.status_code == 303
    _, refused = await signs_in(world, "bo b")
    assert refused.status_code == 403
    assert "preferred_username is 'bo b'" in sentence(refused)

    assert (await world.http.delete("/api/v1/users/ada")).status_code == 200
    assert (await browser.get(f"{base}/api/v1/user")).status_code == 401
    _, refused = await signs_in(world, "Ada")
    assert refused.status_code == 403
    assert "ada was removed from this cluster" in sentence(refused)
    await world.http.post("/api/v1/users", json={"name": "ada"})
    _, refused = await signs_in(world, "Ada")
    assert refused.status_code == 403, "the name is somebody else's until an admin says that it is not"
    await world.http.put("/api/v1/users/ada/link", json={})
    _, done = await signs_in(world, "Ada")
    assert done.status_code == 303
    events = (await world.http.get("/api/v1/events?limit=5000")).text
    assert SECRET not in events
    assert {"UserLinked", "UserGroupsSet", "UserCreated"} <= {item["type"] for item in json.loads(events)}


Forge = Callable[[dict[str, Any], IdP], str]


def forged(**changes: Any) -> Forge:
    def made(claims: dict[str, Any], idp: IdP) -> str:
        wanted = {name: value for name, value in (claims | changes).items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": kid_of(idp)}, wanted, idp.key)

    return made


def kid_of(idp: IdP) -> str:
    return idp.key.thumbprint()


def with_head(head: dict[str, Any], claims: dict[str, Any], secret: bytes = b"") -> str:
    """By hand: a library refuses to make such a token."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims)]
    signature = hmac.digest(secret, b".".join(parts), "sha256") if secret else b""
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def unsigned(claims: dict[str, Any], _: IdP) -> str:
    return with_head({"alg": "none", "typ": "JWT"}, claims)


def by_the_public_key(claims: dict[str, Any], idp: IdP) -> str:
    """As if the provider's public key were a password that both know."""
    return with_head({"alg": "HS256", "kid": kid_of(idp)}, claims, idp.key.as_pem(private=False))


def by_the_clients_secret(claims: dict[str, Any], _: IdP) -> str:
    return with_head({"alg": "HS256"}, claims, SECRET.encode())


def by_another_key(claims: dict[str, Any], idp: IdP) -> str:
    return jwt.encode({"alg": "RS256", "kid": kid_of(idp)}, claims, RSAKey.generate_key(2048))


def by_an_unknown_key(claims: dict[str, Any], _: IdP) -> str:
    return jwt.encode({"alg": "RS256", "kid": "mine"}, claims, RSAKey.generate_key(2048))


def with_its_own_key(claims: dict[str, Any], _: IdP) -> str:
    key = RSAKey.generate_key(2048)
    return jwt.encode({"alg": "RS256", "jwk": key.as_dict(private=False)}, claims, key)


FORGERIES: dict[str, tuple[Forge, str]] = {
    "nonce of another sign-in": (forged(nonce="another"), "its nonce"),
    "no nonce": (forged(nonce=None), "its nonce"),
    "another audience": (forged(aud="another"), "its aud"),
    "audiences of which another is the party": (forged(aud=[CLIENT_ID, "another"], azp="another"), "its azp"),
    "expired": (forged(exp=int(time.time()) - 3_600, iat=int(time.time()) - 7_200), "expired"),
    "issued in the future": (forged(iat=int(time.time()) + 7_200), "its iat"),
    "no expiry": (forged(exp=None), "its exp"),
    "another issuer": (forged(iss="http://127.0.0.1:1/o"), "its iss"),
    "of another access token": (forged(at_hash="AAAAAAAAAAAAAAAAAAAAAA"), "its at_hash"),
    "no subject": (forged(sub=None), "its sub"),
    "another key of the same name": (by_another_key, "its signature is wrong"),
    "a key that the provider does not have": (by_an_unknown_key, "no key of the provider"),
    "a key in the token": (with_its_own_key, ""),
    "alg none": (unsigned, "no algorithm that is taken"),
    "the public key as a password": (by_the_public_key, "no algorithm that is taken"),
    "the client's secret as a key": (by_the_clients_secret, "no algorithm that is taken"),
    "no token": (lambda *_: "nothing.of.that", ""),
}


async def test_a_token_is_believed_from_this_provider_for_this_client_and_this_sign_in_only(
    world: World, idp: IdP, monkeypatch: pytest.MonkeyPatch
) -> None:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

    monkeypatch.setattr(identity_provider, "REFETCH_SECONDS", 0.0)
    fetch = AsyncOAuth2Client.fetch_token
    forge: Forge = forged()

    async def fetched(self: AsyncOAuth2Client, *arguments: Any, **more: Any) -> Any:
        answer = await fetch(self, *arguments, **more)
        claims = json.loads(base64.urlsafe_b64decode(answer["id_token"].split(".")[1] + "=="))
        answer["id_token"] = forge(claims, idp)
        return answer

    monkeypatch.setattr(AsyncOAuth2Client, "fetch_token", fetched)
    for what, (made, why) in FORGERIES.items():
        forge = made
        _, refused = await signs_in(world, "eve")
        assert refused.status_code == 401, what
        assert "is not believed" in sentence(refused), what
        assert why in sentence(refused), what
        assert "tenuto_session" not in refused.headers.get("set-cookie", "")
    assert "eve" not in world.service.loop.state.users
    forge = forged()
    _, done = await signs_in(world, "eve")
    assert done.status_code == 303, "made in the same way, with nothing wrong"


async def test_an_answer_counts_once_and_for_the_browser_that_asked(world: World, idp: IdP) -> None:
    browser, back = await at_provider(world, "eve")
    async with httpx.AsyncClient(timeout=120) as stranger:
        refused = await stranger.get(back)
        assert refused.status_code == 401
        assert "not begun in this browser" in sentence(refused)
    other, elsewhere = await at_provider(world, "eve")
    swapped = httpx.URL(back).copy_set_param("state", httpx.URL(elsewhere).params["state"])
    refused = await other.get(swapped)
    assert refused.status_code == 401, "a code of another sign-in: its verifier is not this one's"
    cookies = dict(browser.cookies)
    assert (await browser.get(back)).status_code == 303
    for name, value in cookies.items():
        browser.cookies.set(name, value, domain="127.0.0.1")
    again = await browser.get(back)
    assert again.status_code == 401, "taken once"
    # Also by the provider: the same code in a sign-in that is new.
    fresh, _ = await at_provider(world, "eve")
    state = (await fresh.get(f"{str(world.http.base_url).rstrip('/')}/api/v1/sso")).headers["location"]
    replayed = httpx.URL(back).copy_set_param("state", httpx.URL(state).params["state"])
    refused = await fresh.get(replayed)
    assert refused.status_code == 401
    assert "invalid_grant" in sentence(refused)
    denied = httpx.URL(back).copy_remove_param("code").copy_set_param("error", "access_denied")
    begun = (await fresh.get(f"{str(world.http.base_url).rstrip('/')}/api/v1/sso")).headers["location"]
    refused = await fresh.get(denied.copy_set_param("state", httpx.URL(begun).params["state"]))
    assert "access_denied" in sentence(refused)


async def test_a_provider_that_changes_its_keys_is_believed_at_once(
    world: World, idp: IdP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_provider, "REFETCH_SECONDS", 0.0)
    _, done = await signs_in(world, "eve")
    assert done.status_code == 303
    for key in (RSAKey.generate_key(2048), idp.key):
        await told(idp, "rotate", key.as_pem(private=True))
        _, done = await signs_in(world, "eve")
        assert done.status_code == 303, done.text


async def test_a_command_line_signs_in_by_link_and_by_code(world: World, tmp_path: Path) -> None:
    base = str(world.http.base_url).rstrip("/")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    environment |= {"TENUTO_URL": base, "XDG_CONFIG_HOME": str(tmp_path / "config"), "DISPLAY": ""}
    tenuto = str(Path(sys.executable).with_name("tenuto"))
    for by_link in (True, False):
        process = await asyncio.create_subprocess_exec(
            tenuto, "login", "--sso", env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdin is not None
        told = ""
        while "type its code" not in told:
            told += (await process.stdout.readline()).decode()
        query = dict(httpx.URL(re.findall(r"http\S+", told)[0]).params)
        browser, page = await signs_in(world, "eve", **query)
        assert page.status_code == 200, page.text
        assert "no-referrer" in page.headers["referrer-policy"]
        [word] = re.findall(r"word <b>(.*?)</b>", page.text)
        assert f"shows the word {word}." in told
        [link] = re.findall(r'href="(http://127\.0\.0\.1:\d+/\?code=[^"]+)"', page.text)
        [code] = re.findall(r"type this code there: <code>(.*?)</code>", page.text)
        if by_link:
            assert (await browser.get(link)).status_code == 200
            output, _ = await process.communicate()
        else:
            output, _ = await process.communicate(f"{code}\n".encode())
        assert process.returncode == 0
        assert f"You are signed in at {base} as eve" in output.decode()
        body = {"code": code, "verifier": VERIFIER}
        assert (await world.http.post("/api/v1/sso/token", json=body)).status_code == 401, "taken once"
    whoami = await asyncio.create_subprocess_exec(tenuto, "whoami", env=environment, stdout=asyncio.subprocess.PIPE)
    assert (await whoami.communicate())[0].startswith(b"eve,")

    # Only who began it takes the session.
    _, page = await signs_in(world, "eve", challenge=challenge_of(VERIFIER))
    assert "href" not in page.text
    [code] = re.findall(r"type this code there: <code>(.*?)</code>", page.text)
    refused = await world.http.post("/api/v1/sso/token", json={"code": code, "verifier": "w" * 64})
    assert refused.status_code == 401
    refused = await world.http.post("/api/v1/sso/token", json={"code": code, "verifier": VERIFIER})
    assert refused.status_code == 401, "nor after somebody else tried"


async def test_where_nobody_is_made_an_admin_makes_users_and_a_provider_that_is_away_is_said(
    database: Any, tmp_path: Path, idp: IdP
) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text(SECRET)
    own = {"oidc_client_id": CLIENT_ID, "oidc_client_secret_file": str(secret), "oidc_scopes": "openid"}
    async with gateway_world(database, tmp_path, oidc_issuer=idp.issuer, **own) as world:
        await known_to(idp, world)
        _, refused = await signs_in(world, "eve")
        assert refused.status_code == 403
        assert "There is no user eve here: ask an admin" in sentence(refused)
        service = world.service.doors.people
        assert service.sso is not None
        with closed_port() as port:
            issuers = (f"http://127.0.0.1:{port}", f"{idp.issuer}/", "http://[")
        for issuer in issuers:
            service.sso.provider.issuer, service.sso.provider._document = issuer, {}
            away = await world.http.get("/api/v1/sso")
            assert away.status_code == 503, issuer
            assert "does not answer as it should" in sentence(away)


async def test_who_is_not_signed_in_hears_whether_there_is_a_provider(world: World, database: Any, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=f"{world.http.base_url}") as nobody:
        assert (await nobody.get("/api/v1/login")).json() == {"provider": True}
