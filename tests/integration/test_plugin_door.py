"""A subject of the gateway that another package has: its route answers, judged like any other; what is wrong with one stops the
start, in a sentence."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from tenuto.kernel import plugins
from tenuto.kernel.plugins import Plugin
from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.http.plugin_doors import DoorPlugin, find_doors
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.rights.permissions import READS, PermissionRule
from tests.support.example_plugins import importable
from tests.support.gateway_world import World, gateway_world

ROUTE = "/plug-ins/csv/experiments"


def asking(world: World, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=world.http.base_url, headers={"Authorization": f"Bearer {token}"})


async def test_a_plugins_route_answers_whoever_may_read_it(database: Any, tmp_path: Path, example_plugins: Path) -> None:
    with importable(example_plugins):
        async with gateway_world(database, tmp_path) as world:
            assert (await world.http.post("/api/v1/workspaces", json={"name": "vault", "private": True})).status_code == 201
            assert (await world.submit()).status_code == 201
            assert (await world.submit(f"{world.config}\nresources: {{workspace: vault}}")).status_code == 201
            assert (await world.http.post("/api/v1/users", json={"name": "eve"})).status_code == 201
            made = [
                await world.http.post("/api/v1/users/eve/tokens", json=body) for body in ({}, {"permissions": ["cluster.view"]})
            ]
            whole, limited = (answer.json()["token"] for answer in made)

            answer = await world.http.get(ROUTE)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
            rows = list(csv.DictReader(io.StringIO(answer.text)))
            assert [(row["id"], row["name"], row["workspace"]) for row in rows] == [
                ("2", "digits", "vault"),
                ("1", "digits", "default"),
            ]
            async with asking(world, whole) as eve:
                seen = list(csv.DictReader(io.StringIO((await eve.get(ROUTE)).text)))
                assert [row["id"] for row in seen] == ["1"], "of a private workspace nothing is shown"
                assert (await eve.get(f"{ROUTE}?unknown=1")).status_code == 400
                assert (await eve.post(ROUTE)).status_code == 405
            async with asking(world, limited) as eve:
                refused = await eve.get(ROUTE)
                assert refused.status_code == 403
                assert "limited to other permissions than experiment.view" in refused.json()["error"]["message"]
            async with asking(world, "nobody's") as stranger:
                assert (await stranger.get(ROUTE)).status_code == 401
            assert ROUTE not in (await world.get("/openapi.json"))["paths"]


async def test_without_the_package_there_is_no_such_route(database: Any, tmp_path: Path) -> None:
    async with gateway_world(database, tmp_path) as world:
        assert (await world.http.get(ROUTE)).status_code == 404


def _made(rules: Mapping[str, PermissionRule], *paths: str, name: str = "own", **more: Any) -> DoorPlugin:
    router = APIRouter()
    for path in paths:
        router.get(path)(lambda: None)
    return DoorPlugin(Subject(name, rules, foreign_routers=(router,), **more))


PLACE = "/plug-ins/own/one"


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (_made({f"GET {PLACE}": READS}, PLACE, name="other"), "its subject is named other"),
        (_made({f"GET {PLACE}": READS}, PLACE, routers=(APIRouter(),)), "its routes must be foreign_routers"),
        (_made({f"GET {PLACE}": READS}, PLACE, middleware=(lambda app: app,)), "it may have no middleware"),
        (_made({"GET /api/v1/experiments": READS}, "/api/v1/experiments"), "/api/v1/experiments is not below /plug-ins/own/"),
        (_made({f"GET {PLACE}": READS}, PLACE, pages={"/": lambda: None}), "/ is not below /plug-ins/own/"),
        (_made({f"GET {PLACE}": READS}, PLACE, PLACE), f"GET {PLACE} is there twice"),
        (_made({}, PLACE), f"GET {PLACE} has no rule among its permissions"),
        (_made({f"GET {PLACE}": READS}), f"GET {PLACE} has a rule and is no route"),
        (_made({f"GET {PLACE}": PermissionRule("experiment.vew")}, PLACE), "experiment.vew is no permission"),
        (object(), "it is a object, and must be a DoorPlugin"),
    ],
)
def test_what_is_wrong_with_a_door_is_said_at_the_start(declared: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Plugin("tenuto.doors", "own", "somebody-s", "1.0", EntryPoint("own", "somebody:PLUGIN", "tenuto.doors"))
    monkeypatch.setattr(plugins, "declared", lambda group: (found,))
    monkeypatch.setattr(plugins, "load", lambda group, name: declared)
    with pytest.raises(SettingsError) as refused:
        find_doors()
    assert str(refused.value).startswith("own of tenuto.doors (package somebody-s 1.0) cannot be used: ")
    assert why in str(refused.value)
    assert find_doors(frozenset({"own"})) == {}
