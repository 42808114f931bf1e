"""Secrets at the REST door: whose they are, and what is said where they cannot be kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_world import World, gateway_world


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as found:
        yield found


async def test_a_new_user_has_nothing_of_whoever_had_the_name_before(world: World) -> None:
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    old = {"Authorization": f"Bearer {made.json()['token']}"}
    async with world.log.pool.acquire() as connection:
        await connection.execute("INSERT INTO secrets VALUES ('olga', 'key', 'x', 1), ('ada', 'key', 'x', 1)")
    assert [item["name"] for item in (await world.http.get("/api/v1/secrets", headers=old)).json()] == ["key"]
    refused = await world.http.post("/api/v1/users", json={"name": "olga"})
    assert refused.status_code == 409
    assert len((await world.http.get("/api/v1/secrets", headers=old)).json()) == 1, "a refusal takes nothing away"

    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    new = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await world.http.get("/api/v1/secrets", headers=new)).json() == []
    async with world.log.pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM secrets") == 1, "those of others stay"

    # This gateway was given no file for the key.
    code, word, message = await world.error("PUT", "/secrets/key", json={"value": "correct horse"}, headers=new)
    assert (code, word) == (503, "unavailable")
    assert "the gateway's log tells its operator why" in message
