"""Secrets at the REST door: whose they are, and what is said where they cannot be kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.schemas.events.search import ExperimentCanceled
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


async def test_nobody_gets_the_name_of_a_removed_user_whose_experiments_run(world: World) -> None:
    """They would take what the new user sets under the names that they know, at their next start."""
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    old = {"Authorization": f"Bearer {made.json()['token']}"}
    for _ in range(2):
        assert (await world.submit(**old)).status_code == 201
    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    code, word, message = await world.error("POST", "/users", json={"name": "olga"})
    assert (code, word) == (409, "conflict")
    assert "Of an earlier user olga experiments have not ended (1, 2)" in message
    assert (await world.http.post("/api/v1/users", json={"name": "ada"})).status_code == 201
    await world.record(*(ExperimentCanceled(experiment_id=number, trials=0) for number in (1, 2)))
    assert (await world.http.post("/api/v1/users", json={"name": "olga"})).status_code == 201


async def test_a_database_that_is_away_is_no_defect_of_the_door(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the door itself asks it, for whose an experiment is, before a handler is reached."""
    made = await world.http.post("/api/v1/users", json={"name": "ada"})
    ada = {"Authorization": f"Bearer {made.json()['token']}"}
    database_away = asyncpg.InternalClientError("got result for unknown protocol state 3")

    async def away(*_: object) -> None:
        raise database_away

    monkeypatch.setattr(world.service.gateway.views, "owner", away)
    monkeypatch.setattr(world.service.gateway.views, "checkpoint", away)
    for method, path in (("POST", "/experiments/7/pause"), ("POST", "/checkpoints/some-checkpoint/verify")):
        code, word, message = await world.error(method, path, headers=ada)
        assert (code, word) == (503, "unavailable"), f"{method} {path}: {message}"
