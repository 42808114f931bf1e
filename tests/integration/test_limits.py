"""Limits that a workspace's admin sets and that are reached while experiments run: of time, and of what is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tenuto.schemas.events.search import ExperimentCompleted
from tenuto.services.gateway.state import State
from tests.support.gateway_world import WHY, World, gateway_world, granted, requested, saved
from tests.support.waiting import SECONDS_MAX

VAULT = "\nresources: {workspace: vault}"


class Users(NamedTuple):
    admin: World
    ada: World
    """Made the private workspace `vault`."""
    eve: World


@pytest.fixture
async def users(database: Any, tmp_path: Path) -> AsyncIterator[Users]:
    async with gateway_world(database, tmp_path, requests_per_second_max=0) as world:
        found = [world]
        for name in ("ada", "eve"):
            token = (await world.http.post("/api/v1/users", json={"name": name})).json()["token"]
            http = httpx.AsyncClient(base_url=world.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            found.append(World(world.service, world.log, http, world.shared))
        assert (await found[1].http.post("/api/v1/workspaces", json={"name": "vault", "private": True})).status_code == 201
        yield Users(*found)
        for user in found[1:]:
            await user.http.aclose()


def when(users: Users, holds: Callable[[State], bool]) -> asyncio.Event:
    """Set as soon as the gateway's state is so."""
    found, loop = asyncio.Event(), users.admin.service.loop
    loop.on_folded(lambda state, _: found.set() if holds(state) else None)
    return found


async def test_an_experiment_runs_for_as_long_as_its_workspace_lets_it(users: Users) -> None:
    ada, eve = users.ada, users.eve
    over = when(users, lambda state: 1 in state.live and state.live[1].canceled)
    described = f"{ada.config}{VAULT[:-1]}, max_wall_hours: 3}}"
    for wrong in (-1, 1e6, "NaN", "Infinity", "8", True, [], {}):
        assert (await ada.error("PATCH", "/workspaces/vault", json={"wall_hours_max": wrong}))[:2] == (400, "invalid"), wrong
    for wrong in (".nan", ".inf", "0", "-3", "1e400", "'12 h'", "100001"):
        refused = await ada.submit(f"{ada.config}{VAULT[:-1]}, max_wall_hours: {wrong}}}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid"), wrong
    assert (await eve.error("PATCH", "/workspaces/vault", json={"wall_hours_max": 9}))[0] == 404
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"wall_hours_max": 2})).json() == {"changed": True}
    assert (await ada.get("/workspaces/vault"))["wall_hours_max"] == 2
    refused = (await ada.submit(described)).json()["error"]
    assert (refused["code"], "run for 2 h at most, and resources.max_wall_hours is 3" in refused["message"]) == (
        "forbidden",
        True,
    )
    shown = (await ada.http.post("/api/v1/preview", json={"config": described})).json()
    assert (shown["wall_hours_max"], "run for 2 h at most" in shown["refused"]) == (2, True)
    shown = (await eve.http.post("/api/v1/preview", json={"config": described})).json()
    assert (shown["wall_hours_max"], "2 h" in shown["refused"]) == (3, False), "nothing of a workspace that eve does not see"
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"wall_hours_max": 1e-5})).json() == {"changed": True}
    assert (await ada.submit(ada.config + VAULT)).json()["id"] == 1
    waits = await ada.get("/experiments/1")
    assert (waits["wall_hours_max"], waits["wall_seconds"], waits["wall_since_us"]) == (1e-5, 0.0, None)
    code, _, why = await ada.error("PATCH", "/experiments/1", json={"max_wall_hours": 1})
    assert (code, "run for 1e-05 h at most" in why) == (403, True)
    assert (await eve.error("PATCH", "/experiments/1", json={"max_wall_hours": 5e-6}))[0] == 404
    for hours, shown_hours in ((5e-6, 5e-6), (None, 1e-5)):
        assert (await ada.http.patch("/api/v1/experiments/1", json={"max_wall_hours": hours})).json()["changed"]
        assert (await ada.get("/experiments/1"))["wall_hours_max"] == shown_hours
    await users.admin.record(requested(1), granted("1-1-1"))
    await asyncio.wait_for(over.wait(), SECONDS_MAX)
    shown = await ada.get("/experiments/1")
    assert shown["wall_since_us"] > 0
    assert "an experiment of workspace vault may run for 1e-05 h" in shown["canceled_because"]
    events = await ada.get("/events?experiment=1")
    reached = next(item for item in events if item["type"] == "ExperimentTimeLimitReached")
    assert "an experiment of workspace vault may run for 1e-05 h; so it is canceled" in reached["sentence"]
    assert [item["type"] for item in events][-2:] == ["ExperimentTimeLimitReached", "ExperimentCancelRequested"]
    assert [item["type"] for item in await eve.get("/events?experiment=1")] == []


async def test_a_rule_forks_nothing_into_a_workspace_whose_checkpoints_have_all_that_they_may(users: Users) -> None:
    ada, admin = users.ada, users.admin
    rule = "\nautomation: [{on: experiment, states: [completed], do: fork, overrides: {name: again}}]"
    for _ in range(2):
        assert (await ada.submit(ada.config + VAULT + rule)).status_code == 201
    full = when(users, lambda state: state.access.workspaces["vault"].noted_bytes is not None)
    await admin.record(requested(1), granted("1-1-1"), saved(5, b"x" * 999))
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"storage_bytes_max": 999})).json() == {"changed": True}
    await asyncio.wait_for(full.wait(), SECONDS_MAX)
    await admin.record(ended(1))
    room = when(users, lambda state: state.access.workspaces["vault"].noted_bytes is None)
    forked = when(users, lambda state: 3 in state.live)
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"storage_bytes_max": 0})).json() == {"changed": True}
    await asyncio.wait_for(room.wait(), SECONDS_MAX)
    await admin.record(ended(2))
    await asyncio.wait_for(forked.wait(), SECONDS_MAX)
    assert admin.service.loop.state.submitted == 3, "the first was not forked"
    noted = [item["data"] for item in await ada.get("/events") if item["type"] == "WorkspaceStorageNoted"]
    assert [(item["stored_bytes"], item["limit_bytes"]) for item in noted] == [(999, 999), (999, 0)]
    assert "vault" not in json.dumps(await users.eve.get("/events"))


def ended(experiment_id: int) -> ExperimentCompleted:
    return ExperimentCompleted(experiment_id=experiment_id, best_trial_id=None, best_metric=None, trials=1, reason=WHY)
