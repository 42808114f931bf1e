"""Automations against a real gateway: all events in order, none lost or doubled through kills, and only by their owners."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto import automation
from tenuto.automation import replaying
from tenuto.automation.running import run
from tenuto.automation.window import Window
from tenuto.client import AsyncClient, ClientError
from tenuto.client.target import Target
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted
from tenuto.services.gateway.http.context import Door
from tests.support.automation_world import Around, at
from tests.support.gateway_world import CONFIG, gateway_world
from tests.support.waiting import SECONDS_MAX

NIGHTLY = f"{CONFIG}labels: [nightly]\n"


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[Around]:
    async with gateway_world(database, tmp_path, Around) as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a hundredth, and heartbeats of a tenth: what is tested is their order."""
    monkeypatch.setattr("tenuto.automation.rules.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("tenuto.automation.ledger.HEARTBEAT_SECONDS", 0.2)


async def test_in_order_and_a_poisoned_event_delays_no_other_rule(world: Around) -> None:
    app, broken = automation.App("mine"), [True]
    seen: list[tuple[Any, ...]] = []
    held = asyncio.Event()

    @app.on("ExperimentCompleted", ExperimentCanceled)
    async def noted(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        seen.append(("noted", event.experiment_id, event.data.experiment_id, type(event.data).__name__))

    @app.on("ExperimentCompleted", attempts=3)
    async def poisoned(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        seen.append(("poisoned", event.experiment_id))
        if event.experiment_id == 2 and broken[0]:
            raise RuntimeError("no room on the disk")

    @app.on(ExperimentCompleted, labels=["nightly"])
    async def labelled(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        seen.append(("labelled", event.experiment_id))
        raise automation.Park("this cannot be done")

    @app.on("ExperimentCanceled")
    async def hanging(event: automation.Event[ExperimentCanceled], cluster: AsyncClient) -> None:
        while not held.is_set():  # noqa: ASYNC110 - on the loop of another thread
            await asyncio.sleep(0.01)

    await world.submitted(3)
    await world.submitted(1, NIGHTLY)
    async with world.running(app):
        await world.record(ExperimentCanceled(experiment_id=3, trials=0))
        await world.complete(1, 2, 4)
        view = await world.until(lambda view: all(at(view, rule)["behind"] == 0 for rule in ("noted", "poisoned", "labelled")))
        assert at(view, "hanging")["behind"] > 0, "it still waits, and held up nobody"
        noted_of = [item[1:] for item in seen if item[0] == "noted"]  # rules are at work side by side: they mingle in `seen`
        assert [experiment for experiment, *_ in noted_of] == [3, 1, 2, 4]
        assert noted_of[0] == (3, 3, "ExperimentCanceled")
        assert [item[1] for item in seen if item[0] == "poisoned"] == [1, 2, 2, 2, 4], "three attempts, then it goes on"
        assert [item[1] for item in seen if item[0] == "labelled"] == [4], "one attempt at what cannot be done"
        parked = sorted(view["parked"], key=lambda item: str(item["rule"]), reverse=True)
        assert [(item["rule"], item["reason"]) for item in parked] == [
            ("poisoned", "RuntimeError: no room on the disk"),
            ("labelled", "this cannot be done"),
        ]
        [trouble] = (await world.get("/status"))["automations"]
        assert (trouble["name"], trouble["parked"]) == ("mine", 2)
        broken[0] = False
        answer = await world.http.post("/api/v1/automations/mine/redeliver")
        assert (answer.status_code, len(answer.json()["numbers"])) == (202, 2)
        view = await world.until(lambda view: len(view["parked"]) == 1 and view["parked"][0]["retries"] == 1)
        assert view["parked"][0]["rule"] == "labelled", "tried again, and parked again; the mended one is gone"
        held.set()
    view = await world.get("/automations/mine")
    assert (view["state"], view["run"], view["source"]) == ("ended", 1, "sse")
    await world.complete(3)
    async with world.running(app):
        await world.until(lambda view: at(view, "noted")["behind"] == 0)
    assert [item[1] for item in seen if item[0] == "noted"] == [3, 1, 2, 4, 3], "begun again behind its position"


async def test_what_is_repeated_changes_nothing_more(world: Around, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model_def.py").write_text("class Trial: ...")
    app, made = automation.App("mine"), []

    @app.on("ExperimentCompleted", attempts=5)
    async def follow_up(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        assert event.experiment_id is not None
        done = await cluster.get_experiment(event.experiment_id)
        fork = await done.fork({"name": "again"})
        other = await cluster.create_experiment(
            {
                "name": "other",
                "entrypoint": "model_def:Trial",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
            },
            tmp_path / "model",
        )
        await fork.pause()
        await other.kill()
        made.append((fork.id, other.id))
        if len(made) < 3:
            raise RuntimeError("after all that")

    await world.submitted(1)
    async with world.running(app):
        await world.complete(1)
        view = await world.until(lambda view: at(view, "follow_up")["behind"] == 0 and len(made) == 3)
    assert made == [(2, 3)] * 3
    assert view["parked"] == []
    types = Counter(event["type"] for event in await world.get("/events"))
    assert (types["ExperimentSubmitted"], types["ExperimentPauseRequested"], types["ExperimentCancelRequested"]) == (3, 1, 1)
    key = {"Idempotency-Key": "once"}
    for path, headers in (("pause", key), ("resume", {}), ("pause", key)):  # the second pause was made before
        answer = await world.http.post(f"/api/v1/experiments/2/{path}", headers=headers)
        assert answer.status_code == 200
    assert (await world.get("/experiments/2"))["state"] == "paused"
    assert (await world.http.post("/api/v1/experiments/2/resume")).json()["changed"] is True
    await world.http.post("/api/v1/experiments/2/pause", headers=key)
    await world.http.post("/api/v1/experiments/2/kill", headers=key)
    await world.record(ExperimentCanceled(experiment_id=2, trials=0))
    again = await world.http.post("/api/v1/experiments/2/kill", headers=key)
    assert (again.status_code, again.json()["changed"]) == (200, True), "killed by this key before: that it has ended is no error"
    assert (await world.http.post("/api/v1/experiments/2/kill")).status_code == 409


async def test_an_event_that_is_ahead_of_the_views_is_missed_by_no_rule(
    world: Around, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views are held up while a rule that asks for a label hears of a new experiment, of which they know nothing yet."""
    app, seen, asked = automation.App("mine"), [], asyncio.Event()
    reached = Door.reached

    async def spied(gateway: Door, position: int) -> None:
        asked.set()
        await reached(gateway, position)

    monkeypatch.setattr(Door, "reached", spied)

    @app.on("ExperimentSubmitted", labels=["nightly"])
    async def labelled(event: automation.Event[ExperimentSubmitted], cluster: AsyncClient) -> None:
        assert event.experiment_id is not None
        seen.append((await cluster.get_experiment(event.experiment_id)).id)

    holding = await asyncpg.connect(database.url)
    try:
        async with world.running(app), asyncio.timeout(SECONDS_MAX):
            held = holding.transaction()
            await held.start()
            await holding.execute("LOCK TABLE experiments IN EXCLUSIVE MODE")
            await world.submitted(1, NIGHTLY)
            assert (await world.http.get("/api/v1/experiments/1")).status_code == 404
            await asked.wait()
            await held.rollback()
            await world.until(lambda view: at(view, "labelled")["behind"] == 0)
    finally:
        await holding.close()
    assert seen == [1]


async def test_an_answer_knows_the_position_that_is_asked_for(world: Around) -> None:
    await world.submitted(1)
    head = (await world.get("/status"))["head"]
    for position, status in ((str(head), 200), (str(head + 1), 503), ("-1", 400), ("1.0", 400), ("", 200)):
        answer = await world.http.get("/api/v1/experiments/1", headers={"Tenuto-At-Least": position})
        assert answer.status_code == status, position
    stranger = {"Tenuto-At-Least": str(head + 1), "Authorization": "Bearer no"}
    assert (await world.http.get("/api/v1/experiments/1", headers=stranger)).status_code == 401, "at once"


KILLED = """
import asyncio
from tenuto import automation

app = automation.App("mine")

@app.on("ExperimentCompleted")
async def follow_up(event, cluster):
    done = await cluster.get_experiment(event.experiment_id)
    fork = await done.fork({"name": f"after {event.experiment_id}"})
    await fork.pause()
    await fork.change(priority=7)
"""


async def test_killed_at_any_moment(world: Around, tmp_path: Path) -> None:
    """kill -9 of the process while it works: each completed experiment has one fork, which was paused once."""
    rules = tmp_path / "rules.py"
    rules.write_text(KILLED)
    ids = await world.submitted(16)
    environment = {**os.environ, "TENUTO_URL": str(world.http.base_url), "TENUTO_TOKEN": world.service.doors.base.token}
    command = [sys.executable, "-m", "tenuto.cli.main", "automation", "run", str(rules), "--from", "0"]
    handled = 0
    for last, wanted in ((False, 1), (False, 3), (False, 2), (True, 0)):
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            line = await process.stdout.readline()
            assert b"automation mine runs" in line, line
            await world.complete(*ids[handled : handled + 4])
            handled += 4
            for _ in range(wanted):
                await process.stdout.readline()
            if not last:
                await asyncio.sleep(0.004 * wanted)  # somewhere in the next one
                process.kill()
            else:
                await world.until(lambda view: at(view, "follow_up")["behind"] == 0)
                process.send_signal(signal.SIGTERM)
            await process.stdout.read()
            code = await process.wait()
        assert code == (0 if last else -signal.SIGKILL)
    view = await world.get("/automations/mine")
    assert (view["state"], view["run"], view["parked"]) == ("ended", 4, [])
    events = await world.get("/events?limit=5000")
    parents = [
        event["data"]["parent"]["experiment_id"]
        for event in events
        if event["type"] == "ExperimentSubmitted" and event["data"].get("parent")
    ]
    assert parents == ids, "one fork of each, in order"
    for type_ in ("ExperimentPauseRequested", "ExperimentPriorityChanged"):
        found = [event["data"]["experiment_id"] for event in events if event["type"] == type_]
        assert found == sorted(set(found)), type_
        assert len(found) == len(ids)


async def test_one_process_at_a_time_and_nobody_elses(world: Around) -> None:
    app = automation.App("mine")

    @app.on("ExperimentCompleted")
    async def noted(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None: ...

    tokens = [(await world.http.post("/api/v1/users", json={"name": name})).json()["token"] for name in ("ada", "eve")]
    ada, eve = ({"Authorization": f"Bearer {token}"} for token in tokens)
    first = asyncio.create_task(run(app, Target(world.target.url, tokens[0], "a")))
    await world.until(lambda found: len(found) == 1, "/automations")
    async with world.running(app):
        with pytest.raises(ClientError, match="is not its latest: it was started again, or removed"):
            await asyncio.wait_for(first, SECONDS_MAX)
        assert (await world.get("/automations/mine"))["owner"] == "ada"
        body = {"run": 2, "rules": [{"rule": "noted", "position": 10**9}]}
        path = "/api/v1/automations/mine"
        for method, at_, sent in (
            ("PUT", path, {"rules": ["noted"]}), ("PATCH", path, body), ("DELETE", path, None),
            ("POST", f"{path}/redeliver", None),
        ):  # fmt: skip
            refused = await world.http.request(method, at_, json=sent, headers=eve)
            assert (refused.status_code, refused.json()["error"]["message"]) == (
                403, "Automation mine is ada's; only ada or an admin may change it.",
            ), method  # fmt: skip
        assert (await world.http.patch(path, json={**body, "run": 1}, headers=ada)).status_code == 409
        wrong: Any
        for wrong in ({"run": 2, "rules": [{"rule": "no such/rule", "position": 1}]}, {"run": 0}, {"run": 2, "rules": 7}, []):
            assert (await world.http.patch(path, json=wrong, headers=ada)).status_code == 400, wrong
    assert (await world.http.delete(path, headers=ada)).status_code == 200
    assert await world.error("GET", "/automations/mine") == (404, "not_found", "There is no automation mine.")
    assert (await world.http.delete(path, headers=ada)).status_code == 404


async def test_a_dry_run_of_the_past_changes_nothing(world: Around) -> None:
    app = automation.App("mine")

    @app.on("ExperimentCompleted")
    async def follow_up(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        assert event.experiment_id is not None
        done = await cluster.get_experiment(event.experiment_id)
        await done.change(priority=3)
        fork = await done.fork({"name": "again"})
        await fork.wait()
        raise AssertionError("never reached")

    @app.on("ExperimentCompleted", labels=["nightly"])
    async def fails(event: automation.Event[ExperimentCompleted], cluster: AsyncClient) -> None:
        await cluster.get_experiment(99)

    await world.submitted(1)
    await world.submitted(1, NIGHTLY)
    await world.complete(1, 2)
    before = await world.get("/events")
    async with AsyncClient(world.target) as client:
        tried = [item async for item in replaying.replay(app, client, 0)]
    assert [(item.rule, item.experiment_id) for item in tried] == [("follow_up", 1), ("follow_up", 2), ("fails", 2)]
    assert [str(call) for call in tried[0].calls] == [
        'PATCH /experiments/1 {"priority": 3}',
        'POST /experiments/1/fork {"overrides": {"name": "again"}}',
    ]
    assert tried[0].end == "What follows depends on what a dry run does not make."
    assert tried[2].end == "It fails: Refused: There is no experiment 99; `tenuto exp ls` lists those that there are."
    assert await world.get("/events") == before
    assert await world.get("/automations") == []


async def test_a_window_keeps_little_and_gives_all(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.automation.window.EVENTS_MAX", 4)
    await world.submitted(9)
    async with AsyncClient(world.target) as client:
        window = Window(client, 0)
        told = await world.get("/events")
        for event in told:
            window.add(event, 100)
        assert window.start > 4
        assert window.end == 9
        slow, position = [], 0
        while position < 9:
            found = await window.after(position)
            slow += [event["position"] for event in found.events]
            position = slow[-1] if found.events else found.upto
        assert slow == list(range(1, 10))


def test_an_app_says_what_is_wrong_with_it() -> None:
    app = automation.App("mine")
    with pytest.raises(ValueError, match="'ExperimentComplete' is no type of event"):
        app.on("ExperimentComplete")
    with pytest.raises(TypeError, match="must be an `async def`"):
        app.on("ExperimentCompleted")(lambda event, cluster: None)  # type: ignore[type-var,arg-type,return-value]
    with pytest.raises(ValueError, match="cannot name an automation"):
        automation.App("My App")
