"""One user's loop is told to come later, and takes nothing from others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateway_world import World, gateway_world

RATE = 0.01
"""One request in 100 s: no machine is so slow that this decides a test."""


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path, requests_per_second_max=RATE) as found:
        yield found


async def as_user(world: World, name: str) -> httpx.AsyncClient:
    token = (await world.http.post("/api/v1/users", json={"name": name})).json()["token"]
    return httpx.AsyncClient(base_url=world.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


async def until_refused(http: httpx.AsyncClient, status: int) -> httpx.Response:
    """The first answer with another status than what is usual."""
    for _ in range(2_000):
        answer = await http.get("/api/v1/user")
        if answer.status_code != status:
            return answer
    raise AssertionError("there was no limit")


async def test_too_many_requests_of_one_user_wait_and_others_do_not(world: World) -> None:
    async with await as_user(world, "eve") as eve, await as_user(world, "ada") as ada:
        refused = await until_refused(eve, 200)
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert error["code"] == "too_many"
        assert re.match(r"Too many requests of eve: send this one again in \d+ s", error["message"])
        assert 0 < int(refused.headers["Retry-After"]) <= 1 / RATE
        assert (await ada.get("/api/v1/user")).status_code == 200
        another = (await world.http.post("/api/v1/users/eve/tokens", json={})).json()["token"]
        again = await ada.get("/api/v1/user", headers={"Authorization": f"Bearer {another}"})
        assert again.status_code == 429, "the limit is the user's, whatever the token"
    for _ in range(20):
        assert (await world.http.get("/api/v1/user")).status_code == 200, "the cluster's own token has no limit"


async def test_guessing_tokens_is_slowed_down_and_holds_up_nobody(world: World) -> None:
    async with httpx.AsyncClient(base_url=world.http.base_url, headers={"Authorization": "Bearer guess"}, timeout=60) as thief:
        refused = await until_refused(thief, 401)
        assert refused.status_code == 429
        assert "without a token that fits" in refused.json()["error"]["message"]
        assert (await world.http.get("/api/v1/user")).status_code == 200
        assert (await thief.get("/healthz")).status_code == 200
