"""Templates, defaults of workspaces and limits, through the door: who may, what is recorded, and what stays as it was."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.events.request import ExperimentSubmitted
from tests.support.gateway_world import CONTEXT as CODE
from tests.support.gateway_world import World, gateway_world, granted, requested, saved

DOCUMENT = Path(__file__).parents[2] / "docs" / "templates.md"
SHORT = """
template: fast
entrypoint: model_def:Trial
searcher: {metric: accuracy}
"""
FAST = {"searcher": {"name": "random", "max_trials": 3, "max_length": {"batches": 50}}, "labels": ["fast"]}


class Users:
    def __init__(self, admin: World, ada: World, eve: World) -> None:
        self.admin, self.ada, self.eve = admin, ada, eve


@pytest.fixture
async def users(database: Any, tmp_path: Path) -> AsyncIterator[Users]:
    """Ada made the private workspace `vault`."""
    kept: dict[str, Any] = {"requests_per_second_max": 0, "secret_key_file": str(tmp_path / "secret.key")}
    async with gateway_world(database, tmp_path, **kept) as world:
        found = [world]
        for name in ("ada", "eve"):
            token = (await world.http.post("/api/v1/users", json={"name": name})).json()["token"]
            http = httpx.AsyncClient(base_url=world.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            found.append(World(world.service, world.log, http, world.shared))
        made = await found[1].http.post("/api/v1/workspaces", json={"name": "vault", "private": True})
        assert made.status_code == 201, made.text
        yield Users(*found)
        for user in found[1:]:
            await user.http.aclose()


async def put(world: World, path: str, config: Any) -> dict[str, Any]:
    body = {"config": config if isinstance(config, str) else json.dumps(config)}
    made = await world.http.put(f"/api/v1{path}", json=body)
    assert made.status_code == 200, made.text
    answer: dict[str, Any] = made.json()
    return answer


async def submitted(world: World, number: int) -> ExperimentSubmitted:
    page = await world.log.read(0, stream=f"request/{number}")
    [found] = [event.data for event in page if isinstance(event.data, ExperimentSubmitted)]
    return found


async def test_what_is_recorded_is_the_merged_configuration_and_who_gave_what(users: Users) -> None:
    ada, admin = users.ada, users.admin
    refused = (await ada.submit(SHORT)).json()["error"]
    assert (refused["code"], "there is no such template" in refused["message"]) == ("invalid", True)
    first = await put(admin, "/templates/fast", FAST)
    assert (first["version"], first["workspace"]) == (1, None)
    assert (await put(admin, "/templates/fast", yaml.safe_dump(FAST)))["version"] == 1, "the same again changes nothing"
    await put(ada, "/workspaces/vault/defaults", {"resources": {"priority": 60}, "max_restarts": 1, "labels": ["vault"]})
    in_vault = SHORT + "resources: {workspace: vault}\nmax_restarts: 2\n"
    assert (await ada.submit(in_vault, idempotency_key="x", **{"Idempotency-Key": "once"})).json()["id"] == 1
    recorded = await submitted(ada, 1)
    config = recorded.config
    assert (config.template, config.searcher.name, config.max_restarts) == (None, "random", 2)
    assert (config.labels, config.resources.priority) == (["fast"], 60)
    assert [(item.kind, item.name, item.workspace, item.version, sorted(item.paths)) for item in recorded.layers] == [
        ("template", "fast", "", 1, ["labels", "searcher.max_length", "searcher.max_trials", "searcher.name"]),
        ("defaults", "", "vault", 1, ["resources.priority"]),
    ]
    assert recorded.layers[0].digest == first["digest"]
    view = await ada.get("/experiments/1")
    assert (view["config"]["searcher"]["max_trials"], view["layers"][0]["name"]) == (3, "fast")
    # A later change of the template changes nothing of it: not its record, not what is made from it, not the same request again.
    changed = {**FAST, "searcher": {**FAST["searcher"], "max_trials": 7}}  # type: ignore[dict-item]
    assert (await put(admin, "/templates/fast", changed))["version"] == 2
    assert (await ada.submit(in_vault, **{"Idempotency-Key": "once"})).json()["id"] == 1
    fork = await ada.http.post("/api/v1/experiments/1/fork", json={"overrides": {"resources": {"priority": 50}}})
    assert fork.status_code == 201, fork.text
    forked = await submitted(ada, 2)
    assert (forked.config.searcher.max_trials, forked.layers, forked.sent_hash) == (3, (), "")  # type: ignore[union-attr]
    again = await ada.http.post("/api/v1/experiments/1/fork", json={"overrides": {"template": "fast"}})
    assert "needs none" in again.json()["detail"]
    assert (await ada.submit(in_vault)).json()["id"] == 3
    assert (await submitted(ada, 3)).config.searcher.max_trials == 7  # type: ignore[union-attr]
    # Other words with the key of the first are another request.
    other = await ada.submit(in_vault.replace("max_restarts: 2", "max_restarts: 3"), **{"Idempotency-Key": "once"})
    assert other.status_code == 409
    assert (await admin.http.delete("/api/v1/templates/fast")).json() == {"changed": True}
    assert (await ada.submit(in_vault)).status_code == 400
    assert (await submitted(ada, 1)) == recorded


async def test_a_template_of_the_workspace_comes_before_one_of_the_cluster(users: Users) -> None:
    ada, eve, admin = users.ada, users.eve, users.admin
    await put(admin, "/templates/fast", {**FAST, "labels": ["cluster"]})
    await put(ada, "/workspaces/vault/templates/fast", {**FAST, "labels": ["vault"]})
    assert (await ada.submit(SHORT + "resources: {workspace: vault}\n")).status_code == 201
    assert (await ada.submit(SHORT)).status_code == 201
    assert [(await submitted(ada, number)).config.labels for number in (1, 2)] == [["vault"], ["cluster"]]
    # A template of the cluster may say the workspace, whose defaults count then.
    await put(ada, "/workspaces/vault/defaults", {"max_restarts": 1})
    await put(admin, "/templates/fast", {**FAST, "resources": {"workspace": "vault"}})
    assert (await ada.submit(SHORT)).status_code == 201
    third = (await submitted(ada, 3)).config
    assert (third.resources.workspace, third.max_restarts) == ("vault", 1)
    refused = (await eve.submit(SHORT)).json()["error"]
    assert (refused["code"], "vault" in refused["message"]) == ("forbidden", True)


async def test_who_may_see_and_change_which(users: Users) -> None:
    ada, eve, admin = users.ada, users.eve, users.admin
    body = {"config": json.dumps(FAST)}
    assert (await eve.error("PUT", "/templates/fast", json=body))[:2] == (403, "forbidden")
    assert (await eve.error("PUT", "/workspaces/default/templates/fast", json=body))[:2] == (403, "forbidden")
    assert (await eve.error("PUT", "/workspaces/default/defaults", json=body))[:2] == (403, "forbidden")
    await put(ada, "/workspaces/vault/templates/own", FAST)
    await put(ada, "/workspaces/vault/defaults", {"max_restarts": 1})
    for path in ("templates/own", "defaults"):
        assert (await eve.error("GET", f"/workspaces/vault/{path}"))[:2] == (404, "not_found")
        assert (await eve.error("DELETE", f"/workspaces/vault/{path}"))[:2] == (404, "not_found")
    assert await eve.get("/templates") == []
    assert [item["name"] for item in await ada.get("/templates?workspace=vault")] == ["own"]
    assert all(item["type"] != "TemplateSet" for item in await eve.get("/events"))
    # Neither a submission nor a preview tells what a private workspace says.
    for config in (SHORT.replace("fast", "own"), SHORT.replace("template: fast", "")):
        text = config + "resources: {workspace: vault}\n"
        for answered in (await eve.submit(text), await eve.http.post("/api/v1/preview", json={"config": text})):
            assert (answered.status_code, "random" in answered.text) in ((403, False), (400, False)), answered.text
    await admin.http.post("/api/v1/workspaces/vault/grants", json={"kind": "user", "name": "eve", "role": "editor"})
    await put(eve, "/workspaces/vault/templates/own", {**FAST, "labels": ["eve"]})
    assert (await eve.error("PUT", "/workspaces/vault/defaults", json=body))[:2] == (403, "forbidden")
    assert (await eve.error("PUT", "/templates/fast", json=body))[:2] == (403, "forbidden")
    elsewhere = {"config": json.dumps({"resources": {"workspace": "default"}})}
    assert (await eve.error("PUT", "/workspaces/vault/templates/own", json=elsewhere))[:2] == (400, "invalid")
    assert (await ada.error("PUT", "/workspaces/vault/defaults", json=elsewhere))[:2] == (400, "invalid")


async def test_hostile_templates_are_refused_with_a_sentence(users: Users) -> None:
    admin = users.admin
    deep = "{a: " * 80 + "1" + "}" * 80
    aliases = (f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in pairwise("abcdefg"))
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(aliases)
    for text, words in (
        (deep, "levels deep"),
        (bomb, "aliases"),
        ("- list", "mapping"),
        ("x: [", "not valid YAML"),
        ("nonsense: 1", "no such field"),
        ("template: other", "names no other template"),
        ("hyperparameters: {when: .nan}", "finite numbers"),
        (f"description: {'x' * 65_600}", "65536"),
    ):
        status, code, message = await admin.error("PUT", "/templates/bad", json={"config": text})
        assert (status, code, words in message) == (400, "invalid", True), (text[:40], message)
    assert await admin.get("/templates") == []
    await put(admin, "/workspaces/default/defaults", {"max_restarts": 1})
    for wrong in ("5", "[fast]", "../fast", "{a: b}"):
        refused = (await admin.submit(SHORT.replace("template: fast", f"template: {wrong}"))).json()["error"]
        assert (refused["code"], refused["path"]) == ("invalid", "template"), refused
    # What is wrong only together with the configuration is told at the submission, with its source.
    await put(admin, "/templates/fast", {**FAST, "environment": {"pull": "always"}})
    refused = (await admin.submit(SHORT)).json()
    assert "template fast (version 1)" in refused["detail"], refused
    await put(admin, "/templates/fast", {"searcher": {"max_trials": -3, "max_length": {"batches": 5}}})
    refused = (await admin.submit(SHORT.replace("{metric", "{name: random, metric"))).json()
    assert "searcher.max_trials" in refused["detail"]
    assert "it comes from template fast (version 2)" in refused["detail"]


async def test_a_preview_says_from_where_each_value_comes(users: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, admin = users.ada, users.admin
    await put(admin, "/templates/fast", FAST)
    await put(ada, "/workspaces/vault/defaults", {"resources": {"priority": 60}})
    await ada.http.patch("/api/v1/workspaces/vault", json={"priority_min": 61})
    text = SHORT + "resources: {workspace: vault}\nmax_restarts: 2\n"
    found = (await ada.http.post("/api/v1/preview", json={"config": text, "overrides": ["max_restarts"]})).json()
    told = {item["path"]: (item["value"], item["source"], item["source_name"]) for item in found["values"]}
    assert told["searcher.max_trials"] == (3, "template", "template fast (version 1)")
    assert told["resources.priority"] == (60, "defaults", "the defaults of workspace vault (version 1)")
    assert told["max_restarts"] == (2, "command_line", "")
    assert told["entrypoint"] == ("model_def:Trial", "configuration", "")
    assert told["resources.slots_per_trial"] == (1, "built_in", "")
    assert "takes priorities from 61" in found["refused"]
    assert found["config"]["resources"]["priority"] == 60
    assert "template" not in found["config"]
    # The same in a terminal.
    config, code = tmp_path / "config.yaml", tmp_path / "code"
    config.write_text(SHORT.replace("template: fast", ""))
    code.mkdir()
    (code / "model_def.py").write_text("class Trial: ...")
    monkeypatch.setenv("TENUTO_TOKEN", admin.http.headers["Authorization"].removeprefix("Bearer "))

    async def run(*words: str) -> tuple[int, str]:
        url = str(admin.http.base_url).rstrip("/")
        done = await asyncio.to_thread(CliRunner().invoke, app, ["--url", url, *words])
        return done.exit_code, done.output + str(done.exception or "")

    failed = await run("exp", "create", str(config), str(code))
    assert (failed[0], "searcher.name: is required" in failed[1]) == (1, True), failed
    shown = await run("exp", "preview", str(config), "--template", "fast", "--set", "max_restarts=4")
    assert shown[0] == 0, shown
    lines = {line.split()[0]: line for line in shown[1].splitlines() if line.strip()}
    assert "template fast (version 1)" in lines["searcher.max_trials"]
    assert "command line" in lines["max_restarts"]
    assert "are built in; --all shows them" in shown[1]
    made = await run("exp", "create", str(config), str(code), "--template", "fast")
    assert (made[0], "Experiment 1 is submitted" in made[1]) == (0, True), made
    assert (await submitted(admin, 1)).layers[0].name == "fast"
    described = await run("exp", "describe", "1")
    assert "template fast (version 1): " in described[1], described
    merged = await run("exp", "preview", str(config), "--template", "fast", "--merged")
    assert yaml.safe_load(merged[1])["searcher"]["max_trials"] == 3
    missing = await run("exp", "create", str(config), str(code), "--template", "slow")
    assert (missing[0], "there is no such template" in missing[1]) == (1, True), missing
    config.write_text(SHORT)
    local = await run("exp", "create", str(config), str(code), "--local")
    assert (local[0], "--merged" in local[1]) == (1, True), local


async def test_images_and_storage_are_limited(users: Users) -> None:
    ada, admin = users.ada, users.admin
    here = "\nresources: {workspace: vault}\n"
    wrong = await ada.error("PATCH", "/workspaces/vault", json={"images": ["bad image"]})
    assert wrong[:2] == (400, "invalid")
    limits = {"images": ["registry.example.com/team/*"], "storage_bytes_max": 1_000}
    assert (await ada.http.patch("/api/v1/workspaces/vault", json=limits)).json() == {"changed": True}
    assert (await ada.http.patch("/api/v1/workspaces/vault", json=limits)).json() == {"changed": False}
    refused = (await ada.submit(ada.config + here + "environment: {image: 'python:3.12'}")).json()["error"]
    assert (refused["code"], "registry.example.com/team/*" in refused["message"]) == ("forbidden", True)
    for image in ("", "environment: {image: 'registry.example.com/team/train:1'}"):
        assert (await ada.submit(ada.config + here + image)).status_code == 201
    fork = await ada.http.post("/api/v1/experiments/1/fork", json={"overrides": {"environment": {"image": "python:3.12"}}})
    assert fork.status_code == 403
    await admin.record(requested(1), granted("1-1-1"), saved(5, b"x" * 999))
    shown = await ada.get("/workspaces/vault")
    assert (shown["storage_bytes"], shown["storage_bytes_max"], shown["images"]) == (999, 1_000, limits["images"])
    assert (await ada.submit(ada.config + here)).status_code == 201
    assert (await ada.http.patch("/api/v1/workspaces/vault", json={"storage_bytes_max": 999})).json() == {"changed": True}
    for answered in (
        await ada.submit(ada.config + here),
        await ada.http.post("/api/v1/experiments/1/fork", json={"overrides": {}}),
    ):
        told = answered.json()["error"]
        assert (told["code"], "have 999 B, and it may have 999 B" in told["message"]) == ("forbidden", True)
    assert "have 999 B" in (await ada.http.post("/api/v1/preview", json={"config": ada.config + here})).json()["refused"]
    assert (await ada.submit(ada.config, CODE)).status_code == 201, "another workspace"


async def test_the_commands_of_the_document(users: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = DOCUMENT.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "page" / "digits").mkdir(parents=True)
    (tmp_path / "page" / "digits" / "model_def.py").write_text("class Trial: ...")
    monkeypatch.chdir(tmp_path / "page")
    for language, block in blocks:
        if language == "yaml":
            Path(block.splitlines()[0].removeprefix("# ")).write_text(block)
    monkeypatch.setenv("TENUTO_URL", str(users.admin.http.base_url).rstrip("/"))
    monkeypatch.setenv("TENUTO_TOKEN", users.admin.http.headers["Authorization"].removeprefix("Bearer "))
    commands = [line for language, block in blocks if not language for line in block.splitlines()]
    assert len(commands) == 8
    for command in commands:
        done = await asyncio.to_thread(CliRunner().invoke, app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output, done.exception)
    recorded = await submitted(users.admin, 1)
    assert [(item.kind, item.version) for item in recorded.layers] == [("template", 1), ("defaults", 1)]
    assert (recorded.config.searcher.max_trials, recorded.config.resources.max_slots) == (32, 4)  # type: ignore[union-attr]
    assert recorded.config.labels == ["vision"]
