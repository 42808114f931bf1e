"""Roles over REST: what is granted counts at once and where it was granted, and nobody gives more than they have."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.gateway_world import World, gateway_world


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def user(world: World, name: str, **fields: Any) -> AsyncIterator[World]:
    """The door as a new user sees it."""
    made = await world.http.post("/api/v1/users", json={"name": name, **fields})
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    async with httpx.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=60) as http:
        yield World(world.service, world.log, http, world.shared)


async def test_roles_count_where_they_were_granted_and_until_they_are_revoked(world: World) -> None:
    async with user(world, "ada") as ada, user(world, "eve") as eve:
        vision = ada.config + "\nresources: {workspace: vision}"
        assert [(await ada.submit(config)).status_code for config in (ada.config, vision)] == [201, 201]
        eves = {"kind": "user", "name": "eve", "role": "editor"}
        refused = await eve.error("POST", "/workspaces/vision/grants", json=eves)
        assert refused[:2] == (403, "forbidden")
        assert "eve may not do this in workspace vision" in refused[2]
        for _ in range(2):
            granted = await world.http.post("/api/v1/workspaces/vision/grants", json=eves)
        assert granted.json() == {"changed": False}
        assert (await eve.http.post("/api/v1/experiments/2/pause")).status_code == 200
        assert (await eve.error("POST", "/experiments/1/pause"))[0] == 403
        assert await eve.get("/grants?workspace=vision") == [{**eves, "workspace": "vision"}]
        revoked = await world.http.delete("/api/v1/workspaces/vision/grants/user/eve/editor")
        assert revoked.json() == {"changed": True}
        assert (await eve.error("POST", "/experiments/2/resume"))[0] == 403
        missing = await world.error("DELETE", "/workspaces/vision/grants/user/eve/editor")
        assert missing[:2] == (404, "not_found")


async def test_nobody_gives_more_than_they_have(world: World) -> None:
    async with user(world, "ada") as ada, user(world, "eve") as eve:
        assert "no permission" in (await world.error("POST", "/roles", json={"name": "x", "permissions": ["x.y"]}))[2]
        for name, allows in (("grants", "role.admin"), ("pools", "pool.admin")):
            made = await world.http.post("/api/v1/roles", json={"name": name, "permissions": [allows]})
            assert made.status_code == 201, made.text
        assert (await world.error("POST", "/roles", json={"name": "viewer", "permissions": []}))[:2] == (409, "conflict")
        assert (await world.error("PUT", "/roles/editor", json={"permissions": []}))[:2] == (409, "conflict")
        to_ada: dict[str, str] = {"kind": "user", "name": "ada"}
        assert (await ada.error("POST", "/grants", json={**to_ada, "role": "grants"}))[0] == 403
        assert (await world.http.post("/api/v1/grants", json={**to_ada, "role": "grants"})).status_code == 200
        for role, allows in (("cluster_admin", "automation.change_others"), ("pools", "pool.admin")):
            code, _, said = await ada.error("POST", "/grants", json={**to_ada, "role": role})
            assert (code, allows in said) == (403, True), said
        widened = await ada.error("PUT", "/roles/pools", json={"permissions": ["user.admin"]})
        assert (widened[0], "user.admin" in widened[2]) == (403, True)
        given = {"kind": "user", "name": "eve", "role": "grants"}
        assert (await ada.http.post("/api/v1/grants", json=given)).status_code == 200
        pool = {"policy": "fifo"}
        assert (await eve.error("PUT", "/pools/default", json=pool))[0] == 403
        assert (await world.http.post("/api/v1/grants", json={**given, "role": "pools"})).status_code == 200
        assert (await eve.http.put("/api/v1/pools/default", json=pool)).status_code == 200
        assert (await world.http.delete("/api/v1/roles/pools")).json() == {"changed": True}
        assert (await eve.error("PUT", "/pools/default", json=pool))[0] == 403
        nobody = await world.error("POST", "/grants", json={**to_ada, "name": "nobody", "role": "viewer"})
        assert nobody[:2] == (404, "not_found")
        assert (await world.http.post("/api/v1/grants", json={**to_ada, "role": "cluster_admin"})).status_code == 200
        assert (await ada.get("/user"))["admin"] is True
        assert (await world.http.delete("/api/v1/users/ada")).status_code == 200
        assert [item["name"] for item in await world.get("/grants")] == ["eve"]
