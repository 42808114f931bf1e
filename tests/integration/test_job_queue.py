"""The queue over REST: a real scheduler answers over a real bus, and what users change there is recorded and decided on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.tasks import stop_task
from tests.support.queue_world import QueueWorld, queue_world
from tests.support.scheduler_driver import exited, joined, requested


@pytest.fixture
async def world(database: Any, nats: Any, tmp_path: Path) -> AsyncIterator[QueueWorld]:
    async with queue_world(database, nats, tmp_path) as world:
        yield world


async def test_each_experiment_says_why_it_waits(world: QueueWorld) -> None:
    await world.tell(joined("a", 4), joined("b", 4))
    first = await world.submit(slots_per_trial=1)
    await world.tell(*requested(first, 1, 2, 3))
    gang = await world.submit(slots_per_trial=4, locality="agent", priority=50)
    await world.tell(*requested(gang, 1, 2))
    huge = await world.submit(slots_per_trial=64)
    await world.tell(*requested(huge, 1))
    rows = await world.queue()
    assert (rows[first]["slots"], rows[first]["trials_waiting"], rows[first]["text"]) == (3, 0, "")
    assert (rows[gang]["slots"], rows[gang]["trials_waiting"]) == (4, 1)
    assert rows[gang]["text"] == "needs 4 slots on one agent; 1 agent has 1 free, none has more"
    assert rows[huge]["text"] == "needs 64 slots, but all agents of pool default together offer 8; it waits for more agents"
    assert [rows[key]["position"] for key in (first, huge, gang)] == [1, 2, 3]


async def test_users_move_experiments_and_change_pools_and_shares(world: QueueWorld) -> None:
    await world.tell(joined("a", 1), joined("x", 1, pool="other"))
    one, two, three = [await world.submit() for _ in range(3)]
    await world.tell(*requested(one, 1), *requested(two, 1), *requested(three, 1))
    assert await world.send("POST", f"/jobs/{three}/move", {"ahead_of": two}) == {"id": three, "changed": True}
    assert [key for key, row in sorted((await world.queue()).items(), key=lambda item: item[1]["position"])] == [one, three, two]
    await world.send("PATCH", f"/experiments/{two}", {"pool": "other"})
    assert (await world.queue("other"))[two]["slots"] == 1
    assert (await world.http.get(f"/experiments/{two}")).json()["pool"] == "other"
    await world.send("PUT", "/pools/default", {"policy": "fair_share", "usage_half_life_hours": 24})
    await world.send("PUT", "/shares/user/admin", {"weight": 2.0, "max_slots": 2})
    rows = await world.queue()
    assert {key: row["share"] for key, row in rows.items()} == {one: 1, three: 0}
    assert rows[three]["text"] == "user admin uses 2 slots and may use 2" or "fair share is 0" in rows[three]["text"]
    refused = await world.http.post(f"/jobs/{three}/move", json={"ahead_of": two})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409,
        f"Experiment {two} is in pool other and experiment {three} in pool default; change its pool first.",
    )
    refused = await world.http.post(f"/jobs/{three}/move", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid")


async def test_what_a_pool_lets_containers_mount_is_kept_and_shown(world: QueueWorld) -> None:
    path = "/pools/gpus/mounts"
    assert (await world.http.get(path)).json() == {"mounts": None}
    body = {"mounts": [{"path": "/data"}, {"path": "/scratch", "writable": True}]}
    assert (await world.send("PUT", path, body))["changed"] is True
    assert (await world.send("PUT", path, body))["changed"] is False
    assert (await world.http.get(path)).json() == body
    for wrong in ("data", "/", "/a/../b"):
        refused = await world.http.put(path, json={"mounts": [{"path": wrong}]})
        assert (refused.status_code, "absolute path" in refused.text) == (400, True)
    await world.send("PUT", path, {"mounts": []})
    assert (await world.http.get(path)).json() == {"mounts": []}
    await world.send("PUT", path, {"mounts": None})
    assert (await world.http.get(path)).json() == {"mounts": None}
    assert (await world.http.get("/pools")).json() == [], "it is no pool with a provisioner by that"


async def test_agents_and_slots_leave_and_come_back(world: QueueWorld) -> None:
    await world.tell(joined("a", 2))
    one = await world.submit()
    await world.tell(*requested(one, 1, 2))
    await world.send("POST", "/agents/a/disable", {"slot_id": 1, "drain": True})
    [agent] = (await world.http.get("/agents")).json()
    assert [slot["enabled"] for slot in agent["slots"]] == [True, False]
    await world.send("POST", "/agents/a/disable", {})
    preempted = [event.data for event in await world.log.read(0) if event.type == "AllocationPreempted"]
    assert [data.reason.rule for data in preempted] == ["slots_closed", "slots_closed"]  # type: ignore[attr-defined]
    await world.tell(exited("1-1-1", "preempted"), exited("1-2-1", "preempted"))
    assert (await world.queue())[one]["slots"] == 0
    await world.send("POST", "/agents/a/enable", {})
    assert (await world.queue())[one]["slots"] == 2
    for path in ("/agents/b/disable", "/agents/a/disable"):
        refused = await world.http.post(path, json={"slot_id": 7})
        assert refused.status_code == 404


async def test_users_have_tokens_and_change_what_is_their_own(world: QueueWorld) -> None:
    made = await world.http.post("/users", json={"name": "ada"})
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    own = {"Authorization": f"Bearer {token}"}
    [created] = [event for event in await world.log.read(0) if event.type == "UserCreated"]
    assert token not in created.payload.decode(), "only its hash is kept"
    me = (await world.http.get("/user", headers=own)).json()
    assert (me["name"], me["admin"], "cluster.view" in me["permissions"]) == ("ada", False, True)
    assert "pool.admin" not in me["permissions"]
    first, second = await world.submit(), await world.submit(headers=own)

    async def code(method: str, path: str, body: Any = None, headers: Any = own) -> Any:
        response = await world.http.request(method, path, json=body, headers=headers)
        return response.status_code if response.is_success else response.json()["error"]["code"]

    assert await code("PATCH", f"/experiments/{second}", {"priority": 10}) == 200
    assert await code("PATCH", f"/experiments/{first}", {"priority": 10}) == "forbidden"
    assert await code("POST", f"/experiments/{first}/cancel") == "forbidden"
    assert await code("POST", f"/jobs/{first}/move", {"behind": second}) == "forbidden"
    assert await code("PUT", "/shares/user/ada", {"weight": 9}) == "forbidden"
    assert await code("POST", "/users", {"name": "eve", "admin": True}) == "forbidden"
    await world.decided()
    [changed] = [event for event in await world.log.read(0) if event.type == "ExperimentPriorityChanged"]
    assert changed.actor == "user:ada"
    assert await code("POST", f"/experiments/{second}/cancel", headers=None) == 200, "an admin may"
    assert await code("POST", "/users", {"name": "ada"}, headers=None) == "conflict"
    assert await code("DELETE", "/users/ada", headers=None) == 200
    assert await code("GET", "/user") == "unauthorized"
    assert await code("DELETE", "/users/ada", headers=None) == "not_found"


async def test_shares_are_listed_with_what_is_used(world: QueueWorld) -> None:
    await world.tell(joined("a", 2))
    await world.send("PUT", "/shares/workspace/vision", {"weight": 2, "max_slots": 8})
    experiment = await world.submit()
    await world.tell(*requested(experiment, 1))
    found = (await world.http.get("/shares")).json()
    assert {(row["owner"], row["name"]): (row["weight"], row["max_slots"], row["slots"]) for row in found} == {
        ("workspace", "vision"): (2.0, 8, 0), ("workspace", "default"): (1.0, None, 1), ("user", "admin"): (1.0, None, 1),
    }  # fmt: skip


async def test_what_is_not_named_of_a_share_or_a_policy_stays(world: QueueWorld) -> None:
    async def vision(**body: Any) -> tuple[float, int | None]:
        await world.send("PUT", "/shares/workspace/vision", body)
        (row,) = (await world.http.get("/shares")).json()
        return row["weight"], row["max_slots"]

    async def half_life(**body: Any) -> float | None:
        await world.send("PUT", "/pools/default", {"policy": "fair_share", **body})
        (pool,) = (await world.http.get("/jobs", params={"pool": "default"})).json()["pools"]
        return pool["usage_half_life_hours"]  # type: ignore[no-any-return]

    await world.tell(joined("a", 2))
    assert await vision(weight=2, max_slots=8) == (2.0, 8)
    assert await vision(weight=3) == (3.0, 8)
    assert await vision(max_slots=4) == (3.0, 4)
    assert await vision(max_slots=None) == (3.0, None)
    assert await half_life(usage_half_life_hours=24) == 24
    assert await half_life() == 24
    assert await half_life(usage_half_life_hours=None) is None


async def test_a_scheduler_that_is_away_is_named(world: QueueWorld) -> None:
    await stop_task(world.answering)
    response = await world.http.get("/jobs")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert "scheduler does not answer" in response.json()["error"]["message"]
