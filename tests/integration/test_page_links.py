"""Links that open the page signed in: each is worth a session once, for a minute, and no longer than what it was made from."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.services.gateway.people.adapters.page_links import LINK_SECONDS
from tenuto.services.gateway.people.routes import page_links
from tests.integration.test_sign_in import FIRST, OWN, asks, quick, sentence, sign_in
from tests.support.gateway_world import World, gateway_world

__all__ = ["quick"]


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as found:
        assert (await found.http.post("/api/v1/users", json={"name": "ada"})).status_code == 201
        yield found


async def test_a_link_opens_the_page_once_and_soon(world: World) -> None:
    await world.http.put("/api/v1/users/ada/password", json={"password": FIRST})
    token = (await sign_in(world, FIRST, new_password=OWN)).json()["token"]
    own_page = {"Origin": str(world.http.base_url).rstrip("/")}

    async def opened(code: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=world.http.base_url, timeout=60) as browser:
            return await browser.post("/api/v1/login/link", json={"code": code}, headers=headers or own_page)

    made = (await asks(world, "POST", "/login/links", token)).json()
    assert made["name"] == "ada"
    assert (await opened(made["code"], Origin="https://elsewhere.example")).status_code == 403
    first = await opened(made["code"])
    assert (first.status_code, first.json()["name"], "token" in first.json()) == (201, "ada", False)
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "SameSite=strict" in first.headers["set-cookie"]
    async with httpx.AsyncClient(base_url=world.http.base_url, cookies=first.cookies, timeout=60) as browser:
        assert (await browser.get("/api/v1/user")).json()["name"] == "ada"
    again = await opened(made["code"])
    assert (again.status_code, sentence(again)) == (401, page_links.USED)
    assert (await opened("x" * 43)).status_code == 401

    made = (await asks(world, "POST", "/login/links", token)).json()
    links = world.service.doors.people.page_links
    links._now = lambda: time.monotonic() + LINK_SECONDS + 1
    assert (await opened(made["code"])).status_code == 401

    made = (await asks(world, "POST", "/login/links", token)).json()
    await asks(world, "POST", "/logout", token)
    ended = await opened(made["code"])
    assert (ended.status_code, sentence(ended)) == (403, "The session that this link was made from has ended: sign in again.")

    program = (await world.http.post("/api/v1/users/ada/tokens", json={})).json()["token"]
    assert "opens no page" in sentence(await asks(world, "POST", "/login/links", program))
    of_cluster = (await world.http.post("/api/v1/login/links")).json()
    assert (await opened(of_cluster["code"])).json()["admin"] is True
