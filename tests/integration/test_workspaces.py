"""What a private workspace hides: in lists, single answers, events as they come, comparisons and notices. And docs/workspaces.md,
whose commands run as they stand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import TrialStopped
from tenuto.schemas.queue import PoolQueue, QueueAnswer, QueueRow, ShareRow
from tenuto.services.gateway.cluster.handling.anonymous import WAITS, as_seen
from tenuto.services.gateway.rights.access import Sight
from tests.support.gateway_world import World, gateway_world
from tests.support.gateway_world import requested as requested_of_1
from tests.support.waiting import SECONDS_MAX, until_async

DOCUMENT = Path(__file__).parents[2] / "docs" / "workspaces.md"
VAULT = "\nresources: {workspace: vault}"


class Users(NamedTuple):
    admin: World
    ada: World
    """Made the private workspace `vault`."""
    eve: World


@pytest.fixture
async def users(database: Any, tmp_path: Path) -> AsyncIterator[Users]:
    kept: dict[str, Any] = {"requests_per_second_max": 0, "secret_key_file": str(tmp_path / "secret.key")}
    async with gateway_world(database, tmp_path, **kept) as world, contextlib.AsyncExitStack() as stack:
        found = [world]
        for name in ("ada", "eve"):
            token = (await world.http.post("/api/v1/users", json={"name": name})).json()["token"]
            headers = {"Authorization": f"Bearer {token}"}
            http = httpx.AsyncClient(base_url=world.http.base_url, headers=headers, timeout=60)
            found.append(World(world.service, world.log, await stack.enter_async_context(http), world.shared))
        made = await found[1].http.post("/api/v1/workspaces", json={"name": "vault", "private": True})
        assert made.status_code == 201, made.text
        yield Users(*found)


async def grant(users: Users, role: str, path: str = "/workspaces/vault") -> None:
    granted = await users.admin.http.post(f"/api/v1{path}/grants", json={"kind": "user", "name": "eve", "role": role})
    assert granted.status_code == 200, granted.text


async def revoke(users: Users, role: str) -> None:
    assert (await users.admin.http.delete(f"/api/v1/workspaces/vault/grants/user/eve/{role}")).status_code == 200


async def test_lists_are_of_what_one_sees_and_their_pages_are_full(users: Users) -> None:
    ada, eve = users.ada, users.eve
    for number in range(8):
        assert (await ada.submit(ada.config + (VAULT if number % 2 else ""))).status_code == 201
    assert [item["id"] for item in await eve.get("/experiments?limit=3")] == [7, 5, 3]
    assert [item["id"] for item in await eve.get("/experiments?limit=3&before=3")] == [1]
    assert await eve.get("/experiments?workspace=vault") == []
    assert [item["id"] for item in await ada.get("/experiments?workspace=vault&limit=2")] == [8, 6]
    seen = {name: {item["name"]: item["experiments"] for item in await who.get("/workspaces")} for name, who in
            (("ada", ada), ("eve", eve), ("admin", users.admin))}  # fmt: skip
    assert seen == {"ada": {"default": 4, "vault": 4}, "eve": {"default": 4}, "admin": {"default": 4, "vault": 4}}
    assert (await eve.error("GET", "/workspaces/vault"))[:2] == (404, "not_found")
    assert (await eve.error("GET", "/workspaces/none"))[
        2
    ] == "There is no workspace none; `tenuto workspace ls` lists those that you see."
    assert (await eve.error("GET", "/experiments/2"))[2] == (await eve.error("GET", "/experiments/99"))[2].replace("99", "2")
    await grant(users, "viewer")
    assert [item["id"] for item in await eve.get("/experiments?limit=3")] == [8, 7, 6]
    assert await eve.get("/experiments/2/logs") == []
    await revoke(users, "viewer")
    assert (await eve.error("GET", "/experiments/2/logs"))[0] == 404
    # One cannot be named either, to come near to it: to compare, to start from, to stand beside in the queue.
    assert (await eve.error("GET", "/diff?a=1&b=2"))[:2] == (404, "not_found")
    assert (await eve.error("POST", "/experiments/2/fork", json={"overrides": {}}))[:2] == (404, "not_found")
    assert (await eve.submit()).json()["id"] == 9
    assert (await eve.error("POST", "/jobs/9/move", json={"ahead_of": 2}))[:2] == (404, "not_found")


async def test_who_may_not_is_refused_where_the_experiment_would_be(users: Users) -> None:
    ada, eve, project = users.ada, users.eve, "\nproject: digits"
    refused = (await eve.submit(eve.config + VAULT)).json()["error"]
    assert (refused["code"], "eve may not do this in workspace vault" in refused["message"]) == ("forbidden", True)
    await grant(users, "viewer")
    assert (await eve.submit(eve.config + VAULT)).status_code == 403
    await grant(users, "editor")
    assert (await eve.submit(eve.config + VAULT + project)).status_code == 201
    assert (await eve.get("/experiments/1"))["project"] == "digits"
    # From there into an open workspace: what one sees may be varied where one may submit, and nowhere else.
    await revoke(users, "editor")
    assert (await eve.error("POST", "/experiments/1/fork", json={"overrides": {}}))[0] == 403
    elsewhere = {"overrides": {"resources": {"workspace": "open"}}}
    assert (await eve.http.post("/api/v1/experiments/1/fork", json=elsewhere)).status_code == 201
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"archived": True})).json() == {"changed": True}
    archived = (await ada.submit(ada.config + VAULT)).json()["error"]
    assert (archived["code"], "Workspace vault is archived" in archived["message"]) == ("conflict", True)
    assert (await users.admin.error("PATCH", "/workspaces/default", json={"archived": True}))[:2] == (409, "conflict")


async def test_a_token_of_one_workspace_sees_and_changes_nothing_beyond(users: Users) -> None:
    ada = users.ada
    for config in (ada.config, ada.config + VAULT, ada.config + "\nresources: {workspace: open}"):
        assert (await ada.submit(config)).status_code == 201
    made = await ada.http.post("/api/v1/users/ada/tokens", json={"label": "ci", "workspace": "vault"})
    assert (made.status_code, made.json()["workspace"]) == (201, "vault")
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    async with httpx.AsyncClient(base_url=ada.http.base_url, headers=headers, timeout=60) as http:
        limited = World(ada.service, ada.log, http, ada.shared)
        assert [item["id"] for item in await limited.get("/experiments")] == [2]
        assert [item["name"] for item in await limited.get("/workspaces")] == ["vault"]
        submitted = [item for item in await limited.get("/events") if item["type"] == "ExperimentSubmitted"]
        assert [item["data"]["experiment_id"] for item in submitted] == [2]
        assert (await limited.error("GET", "/experiments/1/logs"))[:2] == (404, "not_found")
        assert (await limited.error("POST", "/experiments/3/pause"))[:2] == (404, "not_found")
        assert (await limited.error("GET", "/workspaces/open"))[:2] == (404, "not_found")
        assert (await http.post("/api/v1/experiments/2/pause")).status_code == 200
        assert (await limited.submit(ada.config + VAULT)).json()["id"] == 4
        beyond = "This token is limited to workspace vault; use one that is not for what is beyond it."
        assert (await limited.submit(ada.config)).json()["error"]["message"] == beyond
        elsewhere = {"overrides": {"resources": {"workspace": "open"}}}
        fork = json.dumps({"on": "experiment", "states": ["completed"], "do": "fork", **elsewhere})
        later = (await limited.submit(f"{ada.config}{VAULT}\nautomation: [{fork}]")).json()
        assert later["error"]["message"] == beyond, "a rule would submit it when no token is shown"
        for method, path, body in (
            ("POST", "/experiments/2/fork", elsewhere), ("POST", "/users/ada/tokens", {}), ("GET", "/users/ada/tokens", None),
            ("GET", "/secrets", None), ("GET", "/webhooks", None), ("POST", "/workspaces", {"name": "mine"}),
        ):  # fmt: skip
            assert await limited.error(method, path, json=body) == (403, "forbidden", beyond), path
        created = await http.post("/mlflow/api/2.0/mlflow/experiments/create", json={"name": "mlflow"})
        assert (created.status_code, beyond in created.text) == (403, True), "its experiments are in another workspace"
        assert (await limited.get("/user"))["token"]["workspace"] == "vault"
        # A role that is taken away takes the token's rights, too.
        assert (await users.admin.http.delete("/api/v1/workspaces/vault/grants/user/ada/workspace_admin")).status_code == 200
        assert await limited.get("/experiments") == []
    missing = await users.eve.error("POST", "/users/eve/tokens", json={"workspace": "vault"})
    assert missing[:2] == (404, "not_found")


async def test_the_admin_of_a_workspace_gives_it_rules(users: Users, tmp_path: Path) -> None:
    ada, eve, file = users.ada, users.eve, tmp_path / "rules.yaml"
    token = ada.http.headers["Authorization"].removeprefix("Bearer ")
    environment = {"TENUTO_URL": str(ada.http.base_url), "TENUTO_TOKEN": token}

    async def tenuto(*words: str) -> str:
        line = ["automation", "rules", *words, "--workspace", "vault"]
        done = await asyncio.to_thread(CliRunner().invoke, app, line, env=environment)
        return f"{done.output}{done.exception or ''}".replace("\n", " ")

    assert (await ada.submit(ada.config + VAULT)).status_code == 201
    file.write_text("automation:\n  - {on: trial, states: [failed], do: kill}\n  - {on: stall, validations: 3, do: pause}\n")
    assert "Workspace vault has 2 rules." in await tenuto("set", str(file))
    assert "these rules already" in await tenuto("set", str(file))
    assert "They were set by ada." in await tenuto("ls")
    await grant(users, "editor")
    found = await eve.get("/workspaces/vault/rules")
    assert [(rule["on"], rule["do"]) for rule in found["rules"]] == [("trial", "kill"), ("stall", "pause")]
    for method in ("PUT", "DELETE"):
        assert (await eve.error(method, "/workspaces/vault/rules", json={"rules": found["rules"]}))[0] == 403
    stopped = TrialStopped(experiment_id=1, trial_id="1-1", outcome="failed", reason=Reason(rule="test"))
    await ada.record(requested_of_1(1), stopped)
    told = await until_async(lambda: eve.get("/events?limit=1000"), lambda found: "ExperimentRuleActed" in str(found))
    acted = [item for item in told if item["type"] == "ExperimentRuleActed"]
    assert [(item["data"]["workspace"], item["data"]["do"]) for item in acted] == [("vault", "kill")]
    file.write_text("- {on: experiment, states: [completed], do: fork}\n")
    assert "rules[0].do: fork is for rules of an experiment" in await tenuto("set", str(file))
    file.write_text("rules\n")
    assert "has no list of rules" in await tenuto("set", str(file))
    assert "has no rules any more" in await tenuto("rm")
    assert (await eve.get("/workspaces/vault/rules")) == {"rules": [], "user": ""}
    assert (await eve.error("GET", "/workspaces/none/rules"))[:2] == (404, "not_found")


async def test_experiments_move_between_the_projects_of_their_workspace(users: Users) -> None:
    ada, eve = users.ada, users.eve
    assert (await ada.submit(ada.config + "\nproject: digits")).status_code == 201
    assert [item["name"] for item in await eve.get("/workspaces/default/projects")] == ["digits"]
    missing = await ada.error("PUT", "/experiments/1/project", json={"project": "faces"})
    assert missing[:2] == (404, "not_found")
    assert (await eve.http.post("/api/v1/workspaces/default/projects", json={"name": "faces"})).status_code == 201
    assert (await eve.error("PUT", "/experiments/1/project", json={"project": "faces"}))[0] == 403
    for changed in (True, False):
        assert (await ada.http.put("/api/v1/experiments/1/project", json={"project": "faces"})).json()["changed"] is changed
    renamed = await ada.http.patch("/api/v1/workspaces/default/projects/faces", json={"name": "heads"})
    assert renamed.json() == {"changed": True}
    assert [item["id"] for item in await eve.get("/experiments?project=heads")] == [1]
    assert {item["name"]: item["experiments"] for item in await eve.get("/workspaces/default/projects")} == {
        "digits": 0,
        "heads": 1,
    }
    assert (await ada.http.patch("/api/v1/workspaces/default/projects/heads", json={"archived": True})).status_code == 200
    assert (await ada.submit(ada.config + "\nproject: heads")).status_code == 409


async def test_the_admin_of_a_workspace_limits_what_its_experiments_ask_for(users: Users) -> None:
    ada, eve = users.ada, users.eve
    await grant(users, "editor")
    limits = {"priority_min": 20, "priority_max": 60, "slots_max": 4}
    assert (await eve.error("PATCH", "/workspaces/vault", json=limits))[0] == 403
    wrong = await ada.error("PATCH", "/workspaces/vault", json={"priority_min": 61, "priority_max": 60})
    assert wrong[:2] == (400, "invalid")
    assert (await ada.http.patch("/api/v1/workspaces/vault", json=limits)).json() == {"changed": True}
    assert (await eve.get("/workspaces/vault")).items() >= limits.items()

    def of(**resources: object) -> str:
        search = eve.config.replace("{name: single", "{name: random, max_trials: 3")
        return search + f"\nresources: {json.dumps({'workspace': 'vault', 'max_slots': 4, **resources})}"

    for config, words in (
        (of(priority=19), "takes priorities from 20 to 60, and this is 19"),
        (of(priority=61), "and this is 61"),
        (of(max_slots=5), "use 4 slots at most, and this one asks for 5"),
        (of(max_slots=None), "asks for any number"),
        (of(slots_per_trial=5), "asks for 5"),
    ):
        refused = (await eve.submit(config)).json()["error"]
        assert (refused["code"], words in refused["message"]) == ("forbidden", True), refused
    made = await eve.submit(of(priority=20))
    assert made.status_code == 201, made.text
    number = made.json()["id"]
    for change in ({"priority": 1}, {"max_slots": 5}, {"max_slots": None}):
        assert (await eve.error("PATCH", f"/experiments/{number}", json=change))[:2] == (403, "forbidden"), change
    urgent = (await eve.submit(eve.config + "\nresources: {priority: 1}")).json()["id"]
    assert (await eve.error("POST", f"/jobs/{number}/move", json={"ahead_of": urgent}))[:2] == (403, "forbidden")
    assert (await eve.http.patch(f"/api/v1/experiments/{number}", json={"priority": 60, "max_slots": 1})).status_code == 200
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"slots_max": 0})).json() == {"changed": True}
    assert (await eve.submit(of(max_slots=None))).status_code == 201


async def test_each_event_is_judged_by_whoever_reads_it(users: Users) -> None:
    ada, eve = users.ada, users.eve
    hook = {"name": "ends", "target": {"kind": "http", "url": "https://example.com/x"}, "triggers": [{"on": "agent_lost"}]}
    assert (await ada.http.post("/api/v1/webhooks", json=hook)).status_code == 201
    for config in (ada.config + VAULT, ada.config):
        assert (await ada.submit(config)).status_code == 201
    await users.admin.record(requested_of_1(1))

    async def types(world: World, path: str = "") -> list[tuple[str, str]]:
        return [
            (item["type"], item["correlation_id"]) for item in await world.get(f"/events?{path}") if item["type"] != "UserCreated"
        ]

    everything = [
        ("WorkspaceCreated", ""), ("RoleGranted", ""), ("WebhookCreated", ""), ("ExperimentSubmitted", "1"),
        ("ExperimentSubmitted", "2"), ("TrialRequested", "1"),
    ]  # fmt: skip
    assert await types(users.admin) == everything
    assert await types(ada) == everything
    assert await types(eve) == [("ExperimentSubmitted", "2")]
    assert await types(eve, "limit=1&after=2") == [("ExperimentSubmitted", "2")], "a page of hidden ones does not end it"
    assert await types(eve, "experiment=1") == []
    found = {
        event["type"]: event["position"] for event in await users.admin.get("/events/search?type=TrialRequested,WorkspaceCreated")
    }
    assert await eve.get("/events/search?experiment=1") == []
    assert {event["correlation_id"] for event in await eve.get("/events/search?type=ExperimentSubmitted")} == {"2"}
    for hidden in found.values():
        assert (await eve.http.get(f"/api/v1/events/{hidden}/links")).status_code == 404

    async with eve.http.stream("GET", "/api/v1/events/stream?after=2") as response:
        ids = (json.loads(line[6:])["correlation_id"] async for line in response.aiter_lines() if line.startswith("data: "))
        assert await anext(ids) == "2"
        assert (await ada.submit(ada.config + VAULT)).json()["id"] == 3
        assert (await ada.submit()).json()["id"] == 4
        assert await anext(ids) == "4"
        await grant(users, "viewer")
        assert await anext(ids) == ""  # that it was granted
        assert (await ada.submit(ada.config + VAULT)).json()["id"] == 5
        assert await anext(ids) == "5"
        await revoke(users, "viewer")
        assert (await ada.submit(ada.config + VAULT)).json()["id"] == 6
        assert (await ada.submit()).json()["id"] == 7
        assert await anext(ids) == "7"


async def test_webhooks_tell_their_maker_nothing_that_it_does_not_see(users: Users) -> None:
    target = {"kind": "http", "url": "https://example.com/x"}
    for who in (users.ada, users.eve):
        name = "eves" if who is users.eve else "adas"
        hook = {"name": name, "target": target, "triggers": [{"on": "event", "types": ["TrialRequested"]}]}
        made = await who.http.post("/api/v1/webhooks", json=hook)
        assert made.status_code == 201, made.text
    assert (await users.ada.submit(users.ada.config + VAULT)).status_code == 201
    await users.admin.record(requested_of_1(1))
    await asyncio.wait_for(_folded(users.admin), SECONDS_MAX)
    notices = {name: webhook.number for name, webhook in users.admin.service.loop.state.notices.webhooks.items()}
    assert notices == {"adas": 1, "eves": 0}
    assert [item["name"] for item in await users.eve.get("/webhooks")] == ["eves"]
    assert (await users.eve.error("GET", "/webhooks/adas/deliveries"))[:2] == (404, "not_found")
    assert (await users.eve.error("DELETE", "/webhooks/adas"))[:2] == (404, "not_found")
    assert [item["name"] for item in await users.admin.get("/webhooks")] == ["adas", "eves"]


async def _folded(world: World) -> None:
    """Returns when the gateway has decided about all that is recorded."""
    while world.service.loop.position < await world.log.head():  # noqa: ASYNC110 - asks the loop
        await asyncio.sleep(0.02)


def test_the_queue_shows_that_somebody_waits_and_not_who() -> None:
    row = QueueRow(
        position=1, experiment_id=3, pool="default", priority=42, place=3.0, weight=1.0, workspace="vault", user="ada",
        max_slots=8, slots_per_trial=2, slots=4, share=None, trials_waiting=1, rule="waiting.slots",
        text="Trial 3-1 of ada waits.", expected_us=7, expected_trial="3-1", numbers={"trial": "3-1"},
    )  # fmt: skip
    other = row.model_copy(update={"workspace": "default", "experiment_id": 4})
    pool = PoolQueue(
        pool="default", policy="priority", usage_half_life_hours=None, capacity=8, free=0, leaving=0, agents=1, waiting=2,
        rows=(row, other),
    )  # fmt: skip
    shares = tuple(ShareRow(owner="workspace", name=name, weight=1.0, max_slots=None, slots=4) for name in ("default", "vault"))
    answer = QueueAnswer(pools=(pool,), shares=shares)
    seen = as_seen(answer, Sight(frozenset({"vault"})))
    [hidden, shown] = seen.pools[0].rows
    assert shown == other
    assert (hidden.slots, hidden.trials_waiting, hidden.text) == (4, 1, WAITS)
    said = hidden.to_json().decode()
    assert not re.search(r'"3|ada|vault|:3[,}]', said.replace('"place":3.0', "")), said
    assert [item.name for item in seen.shares] == ["default"]
    assert as_seen(answer, Sight()) is answer


async def test_the_commands_of_the_page_do_what_it_says(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCUMENT.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    commands = [line for language, block in blocks if not language for line in block.splitlines()]
    assert len(commands) > 20
    monkeypatch.setenv("TENUTO_URL", str(users.admin.http.base_url).rstrip("/"))
    monkeypatch.setenv("TENUTO_TOKEN", users.admin.http.headers["Authorization"].removeprefix("Bearer "))
    for command in commands:
        done = await asyncio.to_thread(CliRunner().invoke, app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output, done.exception)
    grants = {(item["name"], item["role"], item["workspace"]) for item in await users.admin.get("/grants")}
    assert grants == {
        ("ada", "workspace_admin", "vault"), ("olga", "workspace_admin", "vision"), ("olga", "operator", None),
        ("vision-team", "editor", "vision"),
    }  # fmt: skip
    assert [item["name"] for item in await users.eve.get("/workspaces")] == ["default", "vision"]
