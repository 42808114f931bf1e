"""The REST door over a real socket, on a real database: submissions, views, errors, live updates."""

from __future__ import annotations

import asyncio
import hashlib
import io
import math
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tenuto.kernel.feed import LogFeed
from tenuto.kernel.projection import Projector
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.stores import Stores
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.config.storage import SHARED_STORE
from tenuto.schemas.events.agent import AgentJoined, AgentLost, Slot
from tenuto.schemas.events.node import NodeEnded
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import SlotsClosed
from tenuto.schemas.events.run import WorkersExited, WorkersStarted
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.events.trial import (
    CheckpointDamaged,
    CheckpointDeleted,
    TrialFinished,
    TrialProgressed,
)
from tenuto.schemas.sentences.reports import SourceFreed
from tenuto.services.gateway.projections import TABLES, apply
from tests.support.gateway_world import (
    CONFIG,
    CONTEXT,
    WHY,
    World,
    context,
    gateway_world,
    granted,
    released,
    requested,
    saved,
    state,
    validated,
)


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


async def test_a_submission_is_recorded_stored_and_seen_at_once(world: World) -> None:
    response = await world.submit()
    assert response.status_code == 201, response.text
    assert response.json()["id"] == 1
    seen = await world.get("/experiments/1")
    assert (seen["name"], seen["state"], seen["user"], seen["method"], seen["trials"]) == (
        "digits",
        "active",
        "admin",
        "single",
        {},
    )
    assert seen["config"]["entrypoint"] == "model_def:Trial"
    assert seen["context_hash"] == hashlib.sha256(CONTEXT).hexdigest()
    assert (world.shared / "contexts" / f"{seen['context_hash']}.tar.gz").read_bytes() == CONTEXT
    [event] = await world.log.read(0)
    assert (event.type, event.correlation_id, event.actor) == ("ExperimentSubmitted", "1", "user:admin")
    assert (await world.submit()).json()["id"] == 2
    assert [item["id"] for item in await world.get("/experiments")] == [2, 1]
    assert [item["id"] for item in await world.get("/experiments?before=2&limit=1")] == [1]


async def test_an_idempotency_key_makes_one_experiment(world: World) -> None:
    headers = {"Idempotency-Key": "once"}
    responses = await asyncio.gather(*(world.submit(**headers) for _ in range(4)))
    assert [(item.status_code, item.json()["id"]) for item in responses] == [(201, 1)] * 4
    assert (await world.submit()).json()["id"] == 2


@pytest.mark.parametrize(
    ("config", "archive", "status", "code", "says"),
    [
        (CONFIG.replace("100", "0"), None, 400, "invalid", "searcher.max_length.batches"),
        (CONFIG + "typo: 1\n", None, 400, "invalid", "typo"),
        (CONFIG + "x: [", None, 400, "invalid", "YAML"),
        (CONFIG, b"nothing", 400, "invalid", "tar.gz"),
        (CONFIG, b"\0" * 60_000, 413, "too_large", "50000 bytes"),
        (CONFIG, context(**{"other.py": b""}), 400, "invalid", "model_def"),
    ],
)
async def test_a_bad_submission_says_what_is_wrong_and_leaves_nothing(
    world: World, config: str, archive: bytes | None, status: int, code: str, says: str
) -> None:
    response = await world.submit(config, archive)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert says in error["message"]
    assert await world.log.head() == 0
    left = list((world.shared / "contexts").glob("*")) if (world.shared / "contexts").exists() else []
    assert not any(path.name.startswith(".") for path in left)


async def test_a_token_is_needed_everywhere_but_for_health(world: World) -> None:
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):
        status, code, message = await world.error("GET", "/experiments", headers=headers)
        assert (status, code) == (401, "unauthorized")
        assert "token" in message
    assert (await world.http.get("/healthz", headers={"Authorization": ""})).status_code == 200
    document = await world.http.get("/api/v1/openapi.json", headers={"Authorization": ""})
    assert document.json()["openapi"].startswith("3.")


async def test_requests_change_an_experiment_and_refusals_say_why(world: World) -> None:
    await world.submit()
    for verb, becomes in (("pause", "paused"), ("resume", "active")):
        assert (await world.http.post(f"/api/v1/experiments/1/{verb}")).json() == {"id": 1, "changed": True}
        assert (await world.get("/experiments/1"))["state"] == becomes
        assert (await world.http.post(f"/api/v1/experiments/1/{verb}")).json() == {"id": 1, "changed": False}
    changed = await world.http.patch("/api/v1/experiments/1", json={"priority": 3, "weight": 2.5, "max_slots": 4})
    assert changed.json() == {"id": 1, "changed": True}
    await world.http.patch("/api/v1/experiments/1", json={"max_slots": None})
    seen = await world.get("/experiments/1")
    assert (seen["priority"], seen["weight"], seen["max_slots"]) == (3, 2.5, None)
    assert await world.error("PATCH", "/experiments/1", json={"priority": 0}) == (
        400,
        "invalid",
        "priority: must be greater than or equal to 1 (found 0).",
    )
    assert (await world.error("PATCH", "/experiments/1", json={"speed": 1}))[:2] == (400, "invalid")
    assert (await world.http.post("/api/v1/experiments/1/cancel")).json()["changed"]
    assert (await world.get("/experiments/1"))["state"] == "canceling"
    assert (await world.error("POST", "/experiments/1/pause"))[:2] == (409, "conflict")
    assert (await world.http.post("/api/v1/experiments/1/kill")).json()["changed"]
    assert (await world.error("POST", "/experiments/7/pause"))[:2] == (404, "not_found")


@pytest.mark.parametrize(
    "path",
    [
        "/experiments/9",
        "/experiments/9/trials",
        "/experiments/9/logs",
        "/trials/9-1",
        "/trials/9-1/metrics",
        "/checkpoints/x",
        "/no",
    ],
)
async def test_what_is_not_there_is_404(world: World, path: str) -> None:
    assert (await world.error("GET", path))[:2] == (404, "not_found")


async def test_a_trial_is_seen_through_its_life(world: World) -> None:
    """Long, because it is one life, and each look follows from what was recorded before."""
    await world.submit()
    await world.record(requested(1), requested(2))
    assert await state(world) == "queued"
    joined = AgentJoined(
        agent_id="node",
        pool="default",
        host="h",
        version="1",
        slots=(Slot(slot_id=0, kind="cpu", device="cpu"), Slot(slot_id=1, kind="cpu", device="cpu")),
        unlimited="no limit of memory, because this machine has no cgroups",
        runtimes=("process", "docker"),
        notice="the instance was preempted",
        image="example.org/vision:3",
    )
    await world.record(joined, SlotsClosed(agent_id="node", slot_id=1), granted("1-1-1"))
    assert await state(world) == "starting"
    [agent] = await world.get("/agents")
    assert [(slot["enabled"], slot["allocation_id"]) for slot in agent["slots"]] == [(True, "1-1-1"), (False, None)]
    assert (agent["unlimited"], agent["runtimes"], agent["notice"]) == (joined.unlimited, ["process", "docker"], joined.notice)
    assert agent["image"] == joined.image
    status = await world.get("/status")
    assert (status["agents"], status["slots"], status["slots_used"], status["parked"]) == (1, 1, 1, 0)
    await world.record(WorkersStarted(allocation_id="1-1-1", trial_id="1-1", agent_ids=("node",)))
    assert await state(world) == "running"
    await world.record(
        TrialProgressed(trial_id="1-1", allocation_id="1-1-1", batches=3, length=3),
        saved(5),
        validated(5, accuracy=0.5, loss=math.inf),
        validated(7, accuracy=math.nan),
        validated(8, loss=1.0),
        validated(9, accuracy=0.75),
        saved(9),
        validated(9, accuracy=0.1),  # never happens; a view must not be moved by it
        validated(10, accuracy=0.625),
        CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-5", reason=Reason(rule="test")),
    )
    trial = await world.get("/trials/1-1")
    assert (trial["batches"], trial["best_metric"], trial["best_batches"], trial["latest_metric"]) == (10, 0.75, 9, 0.625)
    assert trial["seed"] == 2**62
    validations = await world.get("/trials/1-1/validations")
    assert [(item["batches"], item["metric"]) for item in validations] == [
        (5, 0.5),
        (7, "NaN"),
        (8, None),
        (9, 0.75),
        (10, 0.625),
    ]
    assert validations[0]["metrics"] == {"accuracy": 0.5, "loss": "Infinity"}
    assert await world.get("/experiments/1/validations") == validations
    experiment = await world.get("/experiments/1")
    assert (experiment["best_trial_id"], experiment["best_metric"]) == ("1-1", 0.75)
    assert experiment["best_checkpoint_id"] == "1-1-1-9"
    assert experiment["trials"] == {"queued": 1, "running": 1}
    for path in ("/experiments/1/checkpoints", "/checkpoints?experiment=1"):
        assert [item["id"] for item in await world.get(path)] == ["1-1-1-9"]
    assert [item["id"] for item in await world.get("/checkpoints?deleted=true")] == ["1-1-1-5", "1-1-1-9"]
    assert [item["id"] for item in await world.get("/checkpoints?trial=1-1")] == ["1-1-1-9"]
    assert await world.get("/checkpoints?trial=1-2") == await world.get("/checkpoints?damaged=true") == []
    await world.record(
        CheckpointDamaged(
            trial_id="1-1", allocation_id="1-1-2", checkpoint_id="1-1-1-9", reason="model is not there", resumed_from="1-1-1-5"
        )
    )
    [damaged] = await world.get("/checkpoints?damaged=true")
    assert (damaged["id"], damaged["damage"], damaged["resumed_from"]) == ("1-1-1-9", "model is not there", "1-1-1-5")
    assert (await world.get("/experiments/1"))["best_checkpoint_id"] is None, "a damaged one is not offered"
    await world.record(TrialPaused(experiment_id=1, trial_id="1-1", reason=WHY))
    preempted = AllocationPreempted(pool="default", allocation_id="1-1-1", trial_id="1-1", experiment_id=1, reason=WHY)
    await world.record(preempted, WorkersExited(allocation_id="1-1-1", trial_id="1-1", outcome="paused", exit_code=81))
    assert await state(world) == "paused"
    assert (await world.get("/allocations"))[0]["state"] == "exited"
    await world.record(released("1-1-1"))
    assert await world.get("/allocations") == []
    await world.record(TrialExtended(experiment_id=1, trial_id="1-1", target_length=20, reason=WHY))
    assert await state(world) == "queued"
    await world.record(granted("1-1-2"), WorkersStarted(allocation_id="1-1-2", trial_id="1-1", agent_ids=("node",)))
    await world.record(WorkersExited(allocation_id="1-1-2", trial_id="1-1", outcome="lost", exit_code=None), released("1-1-2"))
    assert await state(world) == "queued"
    await world.record(TrialStopped(experiment_id=1, trial_id="1-1", outcome="completed", reason=WHY))
    assert await state(world) == "stopping"
    await world.record(
        TrialFinished(trial_id="1-1", batches=10, length=10, checkpoint_id=None),
        ExperimentCompleted(experiment_id=1, best_trial_id="1-1", best_metric=0.75, trials=2, reason=WHY),
        AgentLost(agent_id="node", reason="silent"),
    )
    trial = await world.get("/trials/1-1")
    assert (trial["state"], trial["allocations"]) == ("completed", 2)
    assert trial["ended_us"] >= trial["requested_us"]
    assert (await world.get("/experiments/1"))["state"] == "completed"
    assert (await world.get("/agents"))[0]["state"] == "lost"
    await world.record(NodeEnded(node_id="node", pool="default"))
    assert await world.get("/agents") == [], "a node that came by itself comes back by no name"
    assert (await world.error("POST", "/experiments/1/cancel"))[:2] == (409, "conflict")


async def tables(world: World) -> dict[str, list[Any]]:
    return {name: await world.log.pool.fetch(f"SELECT t::text FROM {name} t ORDER BY 1") for name in TABLES}


async def test_views_are_rebuilt_from_the_log_as_they_were(world: World) -> None:
    await world.submit()
    await world.record(requested(1), granted("1-1-1"), saved(1), validated(1, accuracy=0.5), saved(2), validated(2, loss=1.0))
    await world.http.patch("/api/v1/experiments/1/description", json={"name": "wide", "labels": ["a"], "note": "n"})
    await world.http.post("/api/v1/experiments/1/pause")
    before = await tables(world)
    pool = await asyncpg.create_pool(world.service.doors.base.settings.database_url, min_size=1, max_size=2)
    other = Projector("views-again", apply, pool, LogFeed(world.log))
    await other.rebuild(TABLES)
    assert not any((await tables(world)).values())
    rebuilding = asyncio.create_task(other.run())
    await other.wait_position(await world.log.head())
    await stop_task(rebuilding)
    await pool.close()
    assert await tables(world) == before


async def test_what_is_not_folded_again_yet_is_not_said_to_be_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.submit()
    projector = world.service.doors.log.upkeep._projector
    go, fold = asyncio.Event(), projector._fold

    async def held(*arguments: Any) -> None:
        await go.wait()
        await fold(*arguments)

    monkeypatch.setattr(projector, "_fold", held)
    assert (await world.http.post("/api/v1/views/rebuild")).status_code == 202
    for path in ("/experiments/1", "/experiments/1/trials"):
        status, code, message = await world.error("GET", path)
        assert (status, code) == (503, "unavailable")
        assert "filled again" in message
    go.set()
    await world.service.doors.base.views_reached(await world.log.head())
    assert (await world.get("/experiments/1"))["id"] == 1
    assert (await world.error("GET", "/experiments/2"))[0] == 404


async def test_a_checkpoint_is_downloaded_as_it_was_saved(world: World, tmp_path: Path) -> None:
    await world.submit()
    staged = tmp_path / "staged"
    staged.mkdir()
    (staged / "model").write_bytes(b"weights")
    store = Stores(tmp_path / "shared" / "checkpoints").open_trial(SHARED_STORE, "1-1")
    manifest = checkpoints.save(store, Staged("1-1-1-5", staged, None))
    elsewhere = saved(7).model_copy(update={"location": "file:///etc"})
    await world.record(requested(1), saved(5, b"weights"), saved(6), elsewhere)
    response = await world.http.get("/api/v1/checkpoints/1-1-1-5/download")
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        member = tar.extractfile("model")
        assert member is not None
        assert member.read() == b"weights"
    assert (await world.get("/checkpoints/1-1-1-5"))["files"][0]["path"] == "model"
    store.put_bytes(manifest.files[0].blob, b"weighty")
    with pytest.raises(httpx.RemoteProtocolError):
        await world.http.get("/api/v1/checkpoints/1-1-1-5/download")
    assert (await world.error("GET", "/checkpoints/1-1-1-6/download"))[:2] == (410, "gone")
    code, _, why = await world.error("GET", "/checkpoints/1-1-1-7/download")
    assert (code, why) == (409, "'file:///etc' is not the location of a checkpoint.")
    await world.record(
        CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-5", reason=SourceFreed(started_trial="1-2").reason())
    )
    assert (
        "deleted: it was kept only because trial 1-2 started from it"
        in (await world.error("GET", "/checkpoints/1-1-1-5/download"))[2]
    )


async def test_a_mistyped_trial_is_explained(world: World) -> None:
    sentence = "trial_id: must be the id of a trial, such as 3-7 for the seventh of experiment 3 (found foo)."
    assert await world.error("GET", "/trials/foo") == (400, "invalid", sentence)
