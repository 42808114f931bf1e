"""The queue and the cluster at any position of the log: a process of the real scheduler answers, what is hidden now is hidden
there, too, and it is started anew when it has ended or hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.events.run import WorkersStarted
from tenuto.schemas.queue import PastAnswer, QueueQuestion
from tenuto.schemas.what_if import WhatIfAnswer
from tenuto.services.scheduler.adapters import past_queue as past_module
from tenuto.services.scheduler.explain import queue_answer
from tests.support.queue_world import QueueWorld, queue_world
from tests.support.scheduler_driver import exited, joined, requested, stopped


@pytest.fixture
async def world(database: Any, nats: Any, tmp_path: Path) -> AsyncIterator[QueueWorld]:
    async with queue_world(database, nats, tmp_path) as world:
        yield world


async def at(world: QueueWorld, position: int, path: str = "/jobs", **headers: str) -> dict[str, Any]:
    """Asks again while the process starts, as the page does."""
    for _ in range(20):
        answer = await world.http.get(path, params={"at": position}, headers=headers)
        if answer.status_code != 503:
            break
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_queue_is_as_it_was(world: QueueWorld) -> None:
    await world.tell(joined("a", 2), joined("b", 1))
    first = await world.submit(slots_per_trial=2)
    await world.tell(*requested(first, 1))
    second = await world.submit(slots_per_trial=2)
    await world.tell(*requested(second, 1))
    both = await world.log.head()
    state, [granted] = world.scheduler.loop.state, await world.log.read(both - 1, 1)
    await world.send("POST", "/agents/b/disable", {"drain": True})
    closed = await world.log.head()
    await world.tell(exited("1-1-1"))
    await world.send("PUT", "/pools/default", {"policy": "fair_share"})

    found = await at(world, both)
    said = queue_answer(state, QueueQuestion(), granted.time_us).model_copy(update={"position": both, "time_us": granted.time_us})
    assert found == type(said).model_validate(found).model_dump(mode="json") == said.model_dump(mode="json")
    [pool] = found["pools"]
    assert (pool["policy"], [(row["experiment_id"], row["slots"], row["trials_waiting"]) for row in pool["rows"]]) == (
        "priority", [(first, 2, 0), (second, 0, 1)],
    )  # fmt: skip
    assert pool["rows"][1]["text"].startswith("needs 2 slots")
    assert (await at(world, await world.log.head()))["pools"][0]["policy"] == "fair_share"

    cluster = PastAnswer.model_validate(await at(world, closed, "/cluster"))
    a, b = cluster.agents
    assert [slot.allocation_id for slot in a.slots] == [f"{first}-1-1"] * 2
    assert [(slot.enabled, slot.allocation_id) for slot in b.slots] == [(False, None)]
    before = PastAnswer.model_validate(await at(world, both, "/cluster"))
    assert (before.agents[1].slots[0].enabled, before.agents_more, before.queue.position) == (True, 0, both)

    refused = await world.http.get("/jobs", params={"at": 10_000})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")
    assert refused.json()["error"]["message"].startswith("There is no position 10000 in the log, which ends at")
    for wrong in ("0", "-1", "x", str(2**63)):
        assert (await world.http.get("/jobs", params={"at": wrong})).status_code == 400
    assert (await world.http.get("/cluster")).status_code == 400


async def test_what_is_hidden_now_is_hidden_at_any_moment(world: QueueWorld) -> None:
    made = await world.http.post("/users", json={"name": "eve"})
    eve = {"Authorization": f"Bearer {made.json()['token']}"}
    created = await world.http.post("/workspaces", json={"name": "vault"})
    assert created.status_code in (200, 201), created.text
    await world.tell(joined("a", 1))
    secret = await world.submit(workspace="vault")
    await world.tell(*requested(secret, 1, 2))
    position = await world.log.head()
    assert (await at(world, position, **eve))["pools"][0]["rows"][0]["experiment_id"] == secret
    changed = await world.http.patch("/workspaces/vault", json={"private": True})
    assert changed.status_code == 200, changed.text
    await world.decided()
    [row] = (await at(world, position, **eve))["pools"][0]["rows"]
    assert (row["experiment_id"], row["workspace"], row["user"], row["trials_waiting"]) == (0, "", "", 1)
    cluster = await at(world, position, "/cluster", **eve)
    assert cluster["agents"][0]["slots"][0]["allocation_id"] == "hidden"
    assert "vault" not in str(cluster)
    assert (await at(world, position))["pools"][0]["rows"][0]["experiment_id"] == secret


async def test_a_process_that_ended_or_hangs_is_replaced(world: QueueWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.tell(joined("a", 1))
    head = await world.log.head()
    assert (await at(world, head))["position"] == head
    child = world.scheduler._questions._past._child  # type: ignore[union-attr]
    os.kill(child._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
    assert (await at(world, head))["position"] == head
    os.kill(child._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    with monkeypatch.context() as changed:
        changed.setattr(past_module, "ANSWER_SECONDS_MAX", 0.5)
        refused = await world.http.get("/jobs", params={"at": head})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
    assert {found["position"] for found in await asyncio.gather(*(at(world, head) for _ in range(20)))} == {head}


async def test_what_would_have_happened(world: QueueWorld) -> None:
    """Two trials of one slot each on one slot, and what another agent would have changed."""
    made = await world.http.post("/users", json={"name": "eve"})
    eve = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await world.http.post("/workspaces", json={"name": "vault"})).status_code == 201
    await world.tell(joined("a", 1))
    refused = await world.http.get("/pools/default/what-if")
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409, "No trial had run to its end by then: there is nothing to run again.",
    )  # fmt: skip
    one = await world.submit(workspace="vault")
    await world.tell(*requested(one, 1, 2))
    for trial in (f"{one}-1", f"{one}-2"):
        allocation = f"{trial}-1"
        await world.tell(WorkersStarted(allocation_id=allocation, trial_id=trial, agent_ids=("a",)))
        await asyncio.sleep(0.05)
        await world.tell(stopped(trial), exited(allocation))
    answer = await world.http.get("/pools/default/what-if", params={"agents": 1, "slots": 1})
    assert answer.status_code == 200, answer.text
    found = WhatIfAnswer.model_validate(answer.json())
    happened, _, changed = found.courses
    assert (found.agents, happened.figures.trials, changed.figures.trials) == (("a", "added-1"), 2, 2)
    assert {segment[4] for segment in happened.segments} == {one}
    assert changed.figures.wait_longest_seconds < happened.figures.wait_longest_seconds
    assert (await world.http.patch("/workspaces/vault", json={"private": True})).status_code == 200
    await world.decided()
    asked = {"policy": "fair_share"}
    both = await asyncio.gather(*(world.http.get("/pools/default/what-if", params=asked, headers=eve) for _ in range(2)))
    seen, busy = sorted(both, key=lambda answer: answer.status_code)
    assert (seen.status_code, busy.status_code) == (200, 429)
    assert {segment[4] for course in seen.json()["courses"] for segment in course["segments"]} == {0}
    for wrong in ({"policy": "lottery"}, {"agents": 101}, {"slots": 0}, {"trials": 2_001}, {"at": 0}):
        assert (await world.http.get("/pools/default/what-if", params=wrong)).status_code == 400
