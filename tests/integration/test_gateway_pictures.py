"""What the page's pictures and its code browser are made from, at the REST door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.run import WorkersExited, WorkersStarted
from tenuto.schemas.events.trial import ValidationReported
from tenuto.services.gateway.experiments.adapters import importance
from tests.support.gateway_world import SLOTS, WHY, World, context, gateway_world, granted, released, requested


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as world:
        yield world


def validated(number: int, batches: int, accuracy: float) -> ValidationReported:
    return ValidationReported(
        trial_id=f"1-{number}", allocation_id=f"1-{number}-1", batches=batches, length=batches, metrics={"accuracy": accuracy}
    )


async def test_importance_spark_lines_and_code(world: World) -> None:
    await world.submit(archive=context(**{"model_def.py": b"class Trial: ...", "weights": b"\0"}))
    assert "needs 4 trials" in (await world.error("GET", "/experiments/1/importance"))[2]
    trials = [
        requested(number).model_copy(update={"hyperparameters": {"lr": number / 10, "net": {"units": 8}}})
        for number in range(1, 9)
    ]
    await world.record(*trials, *(validated(number, 10, number / 10) for number in range(1, 9)))
    await world.record(*(validated(8, batches, batches / 1000) for batches in range(11, 111)), validated(8, 200, float("nan")))

    found = await world.get("/experiments/1/importance")
    assert (found["method"], found["metric"], found["compared"], found["more"]) == ("fanova", "accuracy", 8, False)
    assert [(item["name"], item["importance"] > 0.9) for item in found["importances"]] == [("lr", True)]
    assert found["left_out"] == ["net.units"]

    [spark] = await world.get("/sparks?experiments=1,2")
    assert (spark["experiment_id"], len(spark["values"])) == (1, 40)
    assert (spark["batches"][0], spark["batches"][-1], spark["values"][0]) == (10, 110, 0.8)
    for wrong in ("", "a", "1,,2", "1," * 100 + "1"):
        assert (await world.error("GET", f"/sparks?experiments={wrong}"))[:2] == (400, "invalid")

    files = await world.get("/experiments/1/files")
    assert [(file["path"], file["size_bytes"]) for file in files["files"]] == [("model_def.py", 16), ("weights", 1)]
    assert (await world.get("/experiments/1/files/content?path=model_def.py"))["text"] == "class Trial: ..."
    assert (await world.get("/experiments/1/files/content?path=weights"))["text"] is None
    assert (await world.error("GET", "/experiments/1/files/content?path=../token"))[:2] == (404, "not_found")
    (world.shared / "contexts" / f"{files['context_hash']}.tar.gz").unlink()
    for path in ("files", "files/content?path=model_def.py"):
        assert (await world.error("GET", f"/experiments/1/{path}"))[:2] == (410, "gone")
        assert (await world.error("GET", f"/experiments/2/{path}"))[:2] == (404, "not_found")


async def test_a_run_says_when_and_why_it_was_told_to_leave(world: World) -> None:
    await world.submit()
    told = AllocationPreempted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, reason=WHY)
    await world.record(
        requested(1), granted("1-1-1"), WorkersStarted(allocation_id="1-1-1", trial_id="1-1", agent_ids=(SLOTS[0].agent_id,)),
        told, told, WorkersExited(allocation_id="1-1-1", trial_id="1-1", outcome="preempted", exit_code=0),
        released("1-1-1"), granted("1-1-2"), requested(2), granted("1-2-1"),
    )  # fmt: skip
    second, first = await world.get("/allocations?live=false&trial=1-1")
    assert (first["id"], second["id"]) == ("1-1-1", "1-1-2")
    assert first["granted_us"] < first["started_us"] < first["leaving_us"] < first["exited_us"]
    assert first["leaving_reason"] is not None
    assert (second["leaving_us"], second["leaving_reason"]) == (None, None)
    assert await world.get("/allocations?live=false&trial=1-9") == []


async def test_a_forest_that_takes_too_long_is_given_up_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "SECONDS_MAX", 0.01)
    trials = [({"lr": number}, float(number)) for number in range(4)]
    importances = importance.Importances()
    answers = await asyncio.gather(*(importances.of(trials, [], user) for user in "abc"), return_exceptions=True)
    assert {type(answer) for answer in answers} == {importance.NoImportance}
    assert all("not found within" in str(answer) for answer in answers)
    monkeypatch.setattr(importance, "SECONDS_MAX", 300.0)
    monkeypatch.setattr(importance, "PROCESSOR_SECONDS_MAX", 1)
    with pytest.raises(importance.NoImportance, match="more than 1 s of a processor"):
        await importances.of([({f"p{n}": (at * n) % 97 for n in range(1, 60)}, float(at)) for at in range(1_000)], [], "a")
    monkeypatch.setattr(importance, "WAITING_MAX", 0)
    with pytest.raises(importance.NoImportance, match="Too many wait"):
        await importances.of(trials, [], "a")
