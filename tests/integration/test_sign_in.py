"""Sign-in with a password, by programs, browsers and the command line, on a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import argon2
import httpx
import pytest

from tenuto.services.gateway.http import guess_limits as signing_in
from tenuto.services.gateway.http.guess_limits import ADDRESS_FREE, USER_FREE, Throttle
from tenuto.services.gateway.people.adapters import passwords
from tests.support.gateway_world import World, gateway_world

GUIDE = Path(__file__).parents[2] / "docs" / "users.md"
FIRST, OWN, NEXT = "first-otters-juggle-lamps", "quiet walrus eats 3 plums", "sept girafes très polies"
WRONG = "The name or the password is wrong."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that cost little: how they are made is argon2's."""
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: hasher)
    monkeypatch.setattr(passwords, "_nobodys", lambda: hasher.hash("nobody's"))


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as found:
        assert (await found.http.post("/api/v1/users", json={"name": "ada"})).status_code == 201
        yield found


async def sign_in(world: World, password: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=world.http.base_url, timeout=60) as stranger:
        return await stranger.post("/api/v1/login", json={"name": "ada", "password": password, **more})


async def asks(world: World, method: str, path: str, token: str, **arguments: Any) -> httpx.Response:
    return await world.http.request(method, f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"}, **arguments)


def sentence(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


async def test_from_an_admins_password_to_an_own_one_and_out_again(world: World) -> None:
    weak = await world.http.put("/api/v1/users/ada/password", json={"password": "password123"})
    assert weak.status_code == 400
    assert "too easy to guess" in sentence(weak)
    assert "password123" not in weak.text
    assert (await sign_in(world, FIRST)).status_code == 401, "there is no password yet"
    assert (await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})).status_code == 200

    told = await sign_in(world, FIRST)
    assert (told.status_code, told.json()["error"]["code"]) == (403, "password_change")
    assert (await sign_in(world, FIRST, new_password=FIRST)).status_code == 400
    assert (await sign_in(world, FIRST, new_password="ada")).status_code == 400
    made = await sign_in(world, FIRST, new_password=OWN, label="laptop")
    assert made.status_code == 201, made.text
    assert made.headers["cache-control"] == "no-store"
    token = made.json()["token"]
    whoami = (await asks(world, "GET", "/user", token)).json()
    assert (whoami["name"], whoami["token"]["label"], whoami["token"]["session"]) == ("ada", "laptop", True)
    assert (await sign_in(world, FIRST)).status_code == 401

    # A session that has just begun makes a token that outlives it, which stays when the password changes.
    kept = await asks(world, "POST", "/users/ada/tokens", token, json={"expires_days": 30})
    assert kept.status_code == 201, kept.text
    second = (await sign_in(world, OWN)).json()["token"]
    third = (await sign_in(world, OWN, new_password=NEXT)).json()["token"]
    assert [(await asks(world, "GET", "/user", item)).status_code for item in (token, second, third)] == [401, 401, 200]
    assert (await asks(world, "GET", "/user", kept.json()["token"])).status_code == 200
    # The same letters, typed on another keyboard.
    assert (await sign_in(world, NEXT.replace("è", "e\u0300"))).status_code == 201

    assert (await asks(world, "POST", "/logout", third)).status_code == 200
    assert (await asks(world, "GET", "/user", third)).status_code == 401
    for other in (kept.json()["token"], world.http.headers["Authorization"].removeprefix("Bearer ")):
        assert (await asks(world, "POST", "/logout", other)).status_code == 409
    refused = await asks(world, "PUT", "/users/ada/password", kept.json()["token"], json={"password": OWN})
    assert refused.status_code == 403, "a token changes no password: it could be stolen"
    assert (await world.http.put("/api/v1/users/nobody/password", json={"password": OWN})).status_code == 404
    assert (await world.http.put("/api/v1/users/admin/password", json={"password": OWN})).status_code == 409

    assert (await world.http.delete("/api/v1/users/ada/password")).status_code == 200
    assert (await sign_in(world, NEXT)).status_code == 401
    rows = await world.log.pool.fetch("SELECT * FROM passwords")
    assert rows == [], "no hash is left of what is replaced or removed"
    events = (await world.http.get("/api/v1/events?limit=5000")).text
    assert "UserPasswordSet" in events
    assert "argon2" not in events
    for secret in (FIRST, OWN, NEXT, token, third):
        assert secret not in events

    # Who has the name later is somebody else.
    await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})
    session = (await sign_in(world, FIRST, new_password=OWN)).json()["token"]
    assert (await world.http.delete("/api/v1/users/ada")).status_code == 200
    assert (await asks(world, "GET", "/user", session)).status_code == 401
    assert (await world.http.post("/api/v1/users", json={"name": "ada"})).status_code == 201
    assert (await sign_in(world, OWN)).status_code == 401


async def test_guesses_are_slowed_down_and_tell_nothing_about_who_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_in, "FIRST_WAIT_SECONDS", 100.0)
    await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})
    answers = await asyncio.gather(*(sign_in(world, f"guess {number}") for number in range(USER_FREE + 3)))
    assert sorted(answer.status_code for answer in answers) == [401] * USER_FREE + [429] * 3, "also those sent at once"
    last = await sign_in(world, FIRST)
    assert last.status_code == 429, "the right one waits, too"
    assert 1 <= int(last.headers["retry-after"]) <= 100
    unknown = [await sign_in(world, "guess", name="nobody") for _ in range(USER_FREE + 1)]
    assert [answer.status_code for answer in unknown] == [401] * USER_FREE + [429]
    assert {sentence(answer) for answer in [*answers, *unknown] if answer.status_code == 401} == {WRONG}
    assert sentence(unknown[-1]).partition(":")[0].replace("nobody", "ada") == sentence(last).partition(":")[0]
    others = [await sign_in(world, "guess", name=f"user{number}") for number in range(ADDRESS_FREE)]
    assert others[-1].status_code == 429, "an address has its limit over all names"

    # Compared is the work and not the time, which differs by itself on a busy machine.
    monkeypatch.setattr(signing_in, "FIRST_WAIT_SECONDS", 0.0)
    verified: list[str] = []
    verify = argon2.PasswordHasher.verify

    def counted(self: argon2.PasswordHasher, kept: str, password: str) -> Any:
        verified.append(kept.rpartition("$")[0].rpartition("$")[0])
        return verify(self, kept, password)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)
    await world.http.post("/api/v1/users", json={"name": "eve"})
    for name in ("ada", "eve", "nobody", "admin"):
        assert sentence(await sign_in(world, "guess", name=name)) == WRONG
    assert len(verified) == 4
    assert len(set(verified)) == 1, "with the same parameters"

    # Few at once, off the event loop; what is too many is told to come again.
    monkeypatch.setattr(Throttle, "begin", lambda *_: 0.0)
    monkeypatch.setattr(passwords, "WAITING_MAX", 3)
    held = threading.Event()
    monkeypatch.setattr(passwords, "_verify", lambda *_: held.wait(60) and False)
    first = [asyncio.create_task(sign_in(world, "guess")) for _ in range(3)]
    while world.service.doors.people.passwords.waiting < 3:  # noqa: ASYNC110 - the product has no use for such an event
        await asyncio.sleep(0.01)
    more = await sign_in(world, "guess")
    assert more.status_code == 429
    assert (await world.http.get("/healthz")).status_code == 200
    held.set()
    assert [answer.status_code for answer in await asyncio.gather(*first)] == [401] * 3
    assert "wrong" not in (await world.http.get("/api/v1/events?limit=5000")).text


async def test_a_browsers_session_is_a_cookie_that_serves_its_own_page_only(world: World) -> None:
    await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})
    base = str(world.http.base_url).rstrip("/")
    host = {"Origin": base}
    evil = {"Origin": "http://evil.example"}
    body = {"name": "ada", "password": FIRST, "new_password": OWN, "cookie": True}
    async with httpx.AsyncClient(base_url=base, timeout=60) as browser:
        assert (await browser.post("/api/v1/login", json=body, headers=evil)).status_code == 403
        assert (await browser.post("/api/v1/login", json=body)).status_code == 403
        made = await browser.post("/api/v1/login", json=body, headers=host)
        assert made.status_code == 201, made.text
        assert "token" not in made.json()
        cookie = made.headers["set-cookie"]
        assert all(word in cookie for word in ("tenuto_session=", "HttpOnly", "SameSite=strict", "Path=/", "Max-Age="))
        assert "Secure" not in cookie, "without TLS a browser would not send it back"
        assert (await browser.get("/api/v1/user")).json()["name"] == "ada"
        assert (await browser.post("/api/v1/users/ada/tokens", json={}, headers=evil)).status_code == 403
        assert (await browser.post("/api/v1/users/ada/tokens", json={})).status_code == 403
        token = (await browser.post("/api/v1/users/ada/tokens", json={}, headers=host)).json()["token"]
        async with browser.stream("GET", "/api/v1/events/stream") as live:
            assert live.status_code == 200
        assert (await browser.post("/api/v1/logout", headers=evil)).status_code == 403
        over = await browser.post("/api/v1/logout", headers=host)
        assert over.status_code == 200
        assert "Max-Age=0" in over.headers["set-cookie"]
        browser.cookies.set("tenuto_session", made.cookies["tenuto_session"])
        assert (await browser.get("/api/v1/user")).status_code == 401
    cluster = world.http.headers["Authorization"].removeprefix("Bearer ")
    for given in (token, cluster):  # only what was given as a session
        async with httpx.AsyncClient(base_url=base, cookies={"tenuto_session": given}, timeout=120) as browser:
            assert (await browser.get("/api/v1/user")).status_code == 401


async def test_a_service_account_and_the_last_use_of_tokens(world: World) -> None:
    await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})
    ada = (await sign_in(world, FIRST, new_password=OWN)).json()["token"]
    made = await world.http.post("/api/v1/users", json={"name": "ci", "service": True, "owner": "ada"})
    assert made.status_code == 201, made.text
    assert (made.json()["service"], made.json()["owner"]) == (True, "ada")
    assert {"name": "ci", "admin": False, "service": True, "owner": "ada"} in (await world.get("/users"))
    eve = (await world.http.post("/api/v1/users", json={"name": "eve"})).json()["token"]
    assert (await asks(world, "GET", "/users/ci/tokens", eve)).status_code == 403
    assert (await asks(world, "POST", "/users/ci/tokens", eve, json={})).status_code == 403
    assert (await asks(world, "DELETE", "/users/ci", ada)).status_code == 403
    token = (await asks(world, "POST", "/users/ci/tokens", ada, json={"label": "nightly"})).json()
    [first, second] = (await asks(world, "GET", "/users/ci/tokens", ada)).json()
    assert "used_us" not in first
    assert "used_us" not in second
    assert (await asks(world, "GET", "/user", token["token"])).json()["name"] == "ci"
    uses = world.service.doors.base.token_uses
    await uses.write()
    rows = await world.log.pool.fetch("SELECT token_hash FROM token_uses")
    assert token["id"] in {row["token_hash"][:12] for row in rows}
    uses._unwritten.clear()
    [first, second] = (await asks(world, "GET", "/users/ci/tokens", ada)).json()
    assert "used_us" not in first
    assert second["created_us"] <= second["used_us"]
    before = len(await world.get("/events?limit=5000"))
    await asks(world, "GET", "/user", token["token"])
    assert len(await world.get("/events?limit=5000")) == before, "a request is no event"
    assert (await asks(world, "DELETE", f"/users/ci/tokens/{token['id']}", ada)).status_code == 200
    assert (await asks(world, "GET", "/user", token["token"])).status_code == 401


async def test_a_limited_token_does_what_it_is_for_and_no_more(world: World) -> None:
    body = {"permissions": ["experiment.view", "token.change", "user.admin"], "label": "narrow"}
    made = await world.http.post("/api/v1/users/ada/tokens", json=body)
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    assert made.json()["permissions"] == body["permissions"]
    assert (await asks(world, "GET", "/experiments", token)).status_code == 200
    for method, path in (("GET", "/secrets"), ("GET", "/agents"), ("POST", "/webhooks")):
        refused = await asks(world, method, path, token, **({"json": {}} if method == "POST" else {}))
        assert refused.status_code == 403, path
        assert "limited to other permissions" in sentence(refused)
    inherited = (await asks(world, "POST", "/users/ada/tokens", token, json={})).json()
    assert inherited["permissions"] == body["permissions"]
    more = await asks(world, "POST", "/users/ada/tokens", token, json={"permissions": ["secret.change"]})
    assert more.status_code == 403
    whole = (await world.http.post("/api/v1/users/ada/tokens", json={})).json()
    assert (await asks(world, "POST", f"/users/ada/tokens/{whole['id']}/rotate", token)).status_code == 403
    by_role = (await world.http.post("/api/v1/users/ada/tokens", json={"role": "viewer"})).json()
    assert by_role["permissions"] == ["experiment.view"]
    assert (await asks(world, "POST", "/users/ada/tokens", by_role["token"], json={})).status_code == 403
    for wrong, status in (
        ({"role": "nothing"}, 404),
        ({"role": "viewer", "permissions": ["user.admin"]}, 400),
        ({"permissions": []}, 400),
        ({"permissions": ["everything"]}, 400),
    ):
        assert (await world.http.post("/api/v1/users/ada/tokens", json=wrong)).status_code == status, wrong
    # Of the cluster's admin, too: a limited token makes nobody, and no way to sign in, that may more than itself.
    await world.http.post("/api/v1/users", json={"name": "root", "admin": True})
    body = {"permissions": ["user.admin", "token.change"], "expires_days": 1}
    limited = (await world.http.post("/api/v1/users/root/tokens", json=body)).json()["token"]
    for method, path, given in (
        ("POST", "/users", {"name": "new"}),
        ("PUT", "/users/ada/password", {"password": OWN}),
        ("PUT", "/users/ada/link", {}),
        ("POST", "/users/root/tokens", {"expires_days": 50}),
    ):
        assert (await asks(world, method, path, limited, json=given)).status_code == 403, path


async def test_the_command_line_signs_in_and_out(world: World, tmp_path: Path) -> None:
    logins = tmp_path / "config" / "tenuto" / "logins.json"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    base = clean | {"TENUTO_URL": str(world.http.base_url).rstrip("/"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    admin = {"TENUTO_TOKEN_FILE": str(tmp_path / "token")}
    seen: list[str] = []

    async def tenuto(*words: str, given: str = "", status: int = 0, **more: str) -> str:
        command = [str(Path(sys.executable).with_name("tenuto")), *words]
        done = await asyncio.to_thread(
            subprocess.run, command, input=given, capture_output=True, text=True, env=base | more, timeout=120, check=False
        )
        assert done.returncode == status, done
        assert "Traceback" not in done.stderr
        seen.append(done.stdout + done.stderr)
        return seen[-1]

    [block] = re.findall(r"```\n(tenuto user create ada.*?)```", GUIDE.read_text(), re.DOTALL)
    given = {
        "user password ada": f"{FIRST}\n",
        "login ada": f"{FIRST}\n{OWN}\n",
        "user password": f"{OWN}\n{NEXT}\n",
    }
    told, old = {}, {}
    await world.http.delete("/api/v1/users/ada")
    for line in block.splitlines():
        command, _, note = line.partition("#")
        words = command.split()[1:]
        if words == ["login", "ada"]:
            assert WRONG in await tenuto("login", "ada", given="wrong\n", status=1)
            assert not logins.exists()
        if words == ["logout"]:
            logins.chmod(0o644)
            assert "can be read by other users" in await tenuto("whoami", status=1)
            logins.chmod(0o600)
        text = await tenuto(*words, given=given.get(" ".join(words), ""), **(admin if "as an admin" in note else {}))
        told[" ".join(words)] = text
        if words == ["login", "ada"]:
            assert logins.stat().st_mode & 0o777 == 0o600
            old = json.loads(logins.read_text())
    assert "who has to choose another" in told["user password ada"]
    assert "You are signed in" in told["login ada"]
    assert "ada, who may change" in told["whoami"]
    assert "sign-in" in told["user token ls"]
    assert "all earlier sessions have ended" in told["user password"]
    assert "signed out" in told["logout"]
    assert json.loads(logins.read_text()) == {}
    assert "not signed in" in await tenuto("logout", status=1)
    assert "admin, who may change everything" in await tenuto("whoami", **admin), "what is set in the environment goes first"
    [block] = re.findall(r"```\n(tenuto user create nightly.*?)```", GUIDE.read_text(), re.DOTALL)
    for line in block.splitlines():
        text = await tenuto(*line.partition("#")[0].split()[1:], **admin)
    assert "airflow" in text
    assert "service of ada" in await tenuto("user", "ls", **admin)
    logins.write_text(json.dumps(old))
    assert "sign in again with `tenuto login`" in await tenuto("whoami", status=1), "its session has ended"
    assert not any(secret in text for text in seen for secret in (FIRST, OWN, NEXT, *old.values()))
