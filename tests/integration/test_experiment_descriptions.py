"""Names, labels and notes of experiments after their submission, and the archive: by REST and by command, on a real gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.events.search import ExperimentCanceled
from tests.support.gateway_world import CONFIG, World, gateway_world


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


async def ids(world: World, query: str = "") -> list[int]:
    return [item["id"] for item in await world.get(f"/experiments{query}")]


async def test_an_experiment_is_described_and_found_again(world: World) -> None:
    await world.submit()
    await world.submit(CONFIG + "labels: [nightly]\n")
    about = "/api/v1/experiments/1/description"
    described = await world.http.patch(about, json={"name": "LeNet 100%", "labels": ["paper", "wide"], "note": "a\nb"})
    assert described.json() == {"id": 1, "changed": True}
    seen = await world.get("/experiments/1")
    assert (seen["name"], seen["labels"], seen["note"]) == ("LeNet 100%", ["paper", "wide"], "a\nb")
    assert seen["config"]["name"] == "digits", "what was submitted stays as it was"
    head = await world.log.head()
    assert (await world.http.patch(about, json={"labels": ["paper", "wide"], "name": None})).json() == {"id": 1, "changed": False}
    assert await world.log.head() == head, "what is so already is not recorded again"
    await world.http.patch(about, json={"note": ""})
    seen = await world.get("/experiments/1")
    assert (seen["name"], seen["labels"], seen["note"]) == ("LeNet 100%", ["paper", "wide"], "")
    assert await ids(world, "?name=lenet%20100%25") == [1]
    assert await ids(world, "?name=%25") == [1], "no pattern, but a part of the name"
    assert await ids(world, "?label=nightly") == [2]
    assert await ids(world, "?label=night") == []
    assert (await world.error("PATCH", "/experiments/1/description", json={"name": ""}))[:2] == (400, "invalid")
    code = await world.error("PATCH", "/experiments/1/description", json={"labels": ["a", "b\x1b[2J"]})
    assert code == (400, "invalid", "labels[1] must not contain control characters (found \\x1b).")
    assert (await world.error("PATCH", "/experiments/7/description", json={"note": "x"}))[:2] == (404, "not_found")


async def test_an_ended_experiment_is_archived_and_comes_back(world: World) -> None:
    await world.submit()
    await world.submit()
    status, code, message = await world.error("POST", "/experiments/1/archive")
    assert (status, code) == (409, "conflict")
    assert message == "Experiment 1 has not ended; archive it after its end (`tenuto exp kill` ends it)."
    await world.record(ExperimentCanceled(experiment_id=1, trials=0))
    for verb, left in (("archive", [2]), ("unarchive", [2, 1]), ("archive", [2])):
        assert (await world.http.post(f"/api/v1/experiments/1/{verb}")).json() == {"id": 1, "changed": True}
        assert (await world.http.post(f"/api/v1/experiments/1/{verb}")).json() == {"id": 1, "changed": False}
        assert await ids(world) == left
    assert await ids(world, "?archived=true") == [2, 1]
    assert (await world.get("/experiments/1"))["archived"] is True
    assert (await world.http.patch("/api/v1/experiments/1/description", json={"note": "over"})).json()["changed"]
    assert (await world.error("POST", "/experiments/7/archive"))[:2] == (404, "not_found")


async def test_only_the_owner_describes_and_archives_also_after_the_end(world: World) -> None:
    tokens = {}
    for name in ("ada", "eve"):
        made = await world.http.post("/api/v1/users", json={"name": name})
        tokens[name] = {"Authorization": f"Bearer {made.json()['token']}"}
    await world.submit(**tokens["ada"])
    await world.record(ExperimentCanceled(experiment_id=1, trials=0))
    for method, path, body in (("PATCH", "description", {"note": "x"}), ("POST", "archive", None), ("POST", "unarchive", None)):
        refused = await world.error(method, f"/experiments/1/{path}", json=body, headers=tokens["eve"])
        assert refused == (403, "forbidden", "Experiment 1 is ada's; only ada or an admin may change it.")
    assert (await world.http.post("/api/v1/experiments/1/archive", headers=tokens["ada"])).status_code == 200


async def test_the_command_line_does_it_all(world: World) -> None:
    environment = {
        "TENUTO_URL": str(world.http.base_url),
        "TENUTO_TOKEN": world.http.headers["Authorization"].removeprefix("Bearer "),
    }

    async def tenuto(*words: str, fails: bool = False) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, ["exp", *words], env=environment)
        assert bool(done.exit_code) == fails, done.output
        return str(done.exception) if fails else done.output

    await world.submit()
    assert await tenuto("rename", "1", "wide") == "Experiment 1 is changed.\n"
    await tenuto("label", "1", "--add", "paper", "--add", "draft")
    await tenuto("label", "1", "--remove", "draft", "--add", "paper")
    assert "has no label draft; it has paper" in await tenuto("label", "1", "--remove", "draft", fails=True)
    await tenuto("note", "1", "Repeat it.")
    assert "already was so" in await tenuto("note", "1", "Repeat it.")
    described = await tenuto("describe", "1")
    assert all(text in described for text in ("wide", "paper", "Repeat it.")), described
    assert "wide" in await tenuto("ls", "--name", "WID", "--label", "paper")
    assert "No experiment fits." in await tenuto("ls", "--label", "draft")
    await world.record(ExperimentCanceled(experiment_id=1, trials=0))
    assert await tenuto("archive", "1") == "Experiment 1 is archived.\n"
    assert "wide" not in await tenuto("ls")
    assert "canceled, archived" in await tenuto("ls", "--archived")
    assert await tenuto("unarchive", "1") == "Experiment 1 is in lists again.\n"
    assert "wide" in await tenuto("ls")
