"""Names, labels and notes of experiments after their submission, and the archive: by REST and by command, on a real gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.events.search import ExperimentCanceled
from tenuto.services.gateway.experiments.adapters.deleting import Remover
from tests.support.gateway_world import CONFIG, World, context, gateway_world, granted, released, requested, saved
from tests.support.waiting import until_async


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


async def until_deleted(world: World, number: int) -> None:
    """The gateway's task tells nobody."""
    await until_async(lambda: world.get(f"/experiments/{number}"), lambda found: found["deleted_us"] is not None)


async def test_an_ended_experiment_is_deleted_after_its_grace_time(world: World) -> None:
    await world.submit()
    status, code, message = await world.error("DELETE", "/experiments/1")
    assert (status, code) == (409, "conflict")
    assert message == "Experiment 1 has not ended; delete it after its end (`tenuto exp kill 1` ends it)."
    await world.record(
        requested(1), granted("1-1-1"), saved(10), released("1-1-1"), ExperimentCanceled(experiment_id=1, trials=1)
    )
    asked = (await world.http.delete("/api/v1/experiments/1")).json()
    seen = await world.get("/experiments/1")
    assert asked["changed"]
    assert asked["due_us"] == seen["deletion_due_us"] > seen["ended_us"] + 20 * 3_600_000_000
    assert (await world.http.post("/api/v1/experiments/1/undelete")).json() == {"id": 1, "changed": True}
    assert (await world.http.post("/api/v1/experiments/1/undelete")).json() == {"id": 1, "changed": False}
    assert (await world.get("/experiments/1"))["deletion_due_us"] is None
    assert (await world.error("DELETE", "/experiments/7"))[:2] == (404, "not_found")
    await world.http.delete("/api/v1/experiments/1")
    assert (await world.error("POST", "/experiments/1/fork", json={}))[:2] == (409, "conflict")
    assert (await world.http.delete("/api/v1/experiments/1?now=true")).json()["changed"]
    await until_deleted(world, 1)
    assert await ids(world) == []
    assert await ids(world, "?deleted=true") == [1]
    assert await world.get("/experiments/1/checkpoints") == []
    [checkpoint] = await world.get("/experiments/1/checkpoints?deleted=true")
    assert checkpoint["delete_reason"] == "admin asked for the deletion of experiment 1, at once."
    for method, path in (("DELETE", ""), ("POST", "/undelete")):
        refused = await world.error(method, f"/experiments/1{path}")
        assert refused == (410, "gone", "Experiment 1 is deleted, and cannot be brought back.")
    refused = await world.error("POST", "/experiments/1/fork", json={})
    assert refused == (409, "conflict", "Experiment 1 is deleted, so no other can be made from it.")


async def test_code_is_removed_with_the_last_experiment_that_has_it(world: World, database: Any) -> None:
    for _ in range(2):
        await world.submit()
    await world.submit(archive=context(**{"model_def.py": b"class Trial: pass"}))
    code = dict.fromkeys((world.shared / "contexts").glob("*.tar.gz"))
    assert len(code) == 2
    doors = world.service.doors
    remover = Remover(doors.experiments.views._pool, world.shared / "contexts", doors.plugins["mlflow"].forget)
    left = []
    for number in (1, 3, 2):
        await world.record(ExperimentCanceled(experiment_id=number, trials=0))
        await world.http.delete(f"/api/v1/experiments/{number}?now=true")
        await until_deleted(world, number)
        [*_, event] = await world.log.read(0, 1000, types=["ExperimentDeleted"])
        if number == 3:
            await remover.remove(event)
            assert len(list((world.shared / "contexts").glob("*.tar.gz"))) == 2, (
                "just stored: somebody may be submitting it again"
            )
            for path in code:
                os.utime(path, (0, 0))
        for _ in range(2):
            await remover.remove(event)
        left.append(len(list((world.shared / "contexts").glob("*.tar.gz"))))
    assert left == [2, 1, 0]


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
    assert "until then `tenuto exp undelete 1` keeps it" in " ".join((await tenuto("delete", "1", "--yes")).split())
    assert "canceled, to be deleted" in await tenuto("ls")
    assert await tenuto("undelete", "1") == "Experiment 1 is kept.\n"
    assert "nothing changed" in await tenuto("undelete", "1")
    assert "is deleted now" in await tenuto("delete", "1", "--now", "--yes")
