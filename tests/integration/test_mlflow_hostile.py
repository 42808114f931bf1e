"""Hostile requests in MLflow's protocol: each route of the table with values that fit no field, alone and in place of right ones.
Nothing is an error of the server, and whoever sees nothing learns nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.services.gateway.subjects import SUBJECTS, permissions_of
from tests.support.gateway_world import World, gateway_world
from tests.support.mlflow_world import API, FILES

ROUTES = permissions_of(SUBJECTS).rules

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**63, -(2**63), 1e308, "", " ", "0", "-1", "1-1", "1-2147483648", "999999999999999999-1", "٣-1",
    "1-1 ", "a\x00b", "\x1b[2J", "\u202e", "'; DROP TABLE trials; --", "%s%n", "../../etc/passwd", "x" * 9_000, [], {}, [[]],
    [None] * 3, [{"key": "a"}], {"key": {"key": 1}}, "metrics.`", "metrics.a > 'x' AND", "a" * 300,
)  # fmt: skip
"""Each stands in for each field."""
PATHS = ("%00", "..%2f..%2fetc", "a/../../b", "%2e%2e/%2e%2e", "a//b", "/", "a%0ab", "%ff", "C:%5c", "%e2%80%ae", ".", "a" * 600)
PARTS = int(os.environ.get("TENUTO_BODIES_PARTS", "6"))
"""Each route is asked with one part of the bodies and its neighbours with the others, because routes share what reads them; 1
asks each route with all, which takes more than a minute."""
RIGHT: dict[str, Any] = {
    "run_id": "1-1", "run_uuid": "1-1", "experiment_id": "1", "experiment_ids": ["1"], "name": "n", "new_name": "m", "key": "k",
    "value": 1.0, "timestamp": 1, "step": 1, "filter": "", "order_by": [], "max_results": 5, "page_token": "", "view_type": "ALL",
    "run_view_type": "ALL", "status": "RUNNING", "end_time": 5, "start_time": 5, "run_name": "r", "tags": [], "params": [],
    "metrics": [], "datasets": [], "artifact_location": "",
}  # fmt: skip


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path, requests_per_second_max=0, artifact_bytes_max=20_000) as made:
        assert (await made.http.post(f"{API}/experiments/create", json={"name": "rules"})).status_code == 200
        assert (await made.http.post(f"{API}/runs/create", json={"experiment_id": "1"})).status_code == 200
        yield made


def of_mlflow(method: str) -> list[str]:
    return [route.partition(" ")[2] for route in ROUTES if route.startswith(f"{method} /mlflow/")]


def bodies() -> Iterator[bytes]:
    for field in RIGHT:
        for odd in ODD:
            yield json.dumps({**RIGHT, "value": "1", field: odd} if field != "value" else {**RIGHT, field: odd}).encode()
    for odd in ODD:
        for pair in ({"key": odd, "value": "1"}, {"key": "k", "value": odd}, odd):
            yield json.dumps({**RIGHT, "tags": [pair], "params": [pair], "metrics": [pair]}).encode()
        yield json.dumps({"run_id": "1-1", "datasets": [{"dataset": {"name": odd, "digest": odd, "profile": odd}}]}).encode()
    yield from (b"", b"[", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"run_id": "\\ud800"}', b'{"run_id": "1-1", "run_id": 3}')
    yield b'{"run_id": "1-1", "key": "k", "value": "\\ud800\\u0000"}'
    yield b'{"run_id": "1-1", "key": "k", "timestamp": 1, "value": 1e999}'
    yield b'{"experiment_id": "1", "run_name": "a\\u0000b", "tags": [{"key": "mlflow.runName", "value": "\\u0000"}]}'


async def test_no_body_is_an_error_of_the_server(world: World) -> None:
    wrong = []
    every = [*bodies()]
    for at, path in enumerate(of_mlflow("POST")):
        for body in every[at % PARTS :: PARTS]:
            answer = await world.http.post(path, content=body)
            if answer.status_code >= 500 or (answer.status_code != 200 and set(answer.json()) != {"error_code", "message"}):
                wrong.append((path, body[:300], answer.text))
    assert not wrong
    made = await world.http.post(f"{API}/runs/search", json={"experiment_ids": ["1"], "run_view_type": "ALL"})
    assert made.status_code == 200, made.text


async def test_no_query_and_no_path_is_an_error_of_the_server(world: World) -> None:
    names = ("run_id", "experiment_id", "experiment_name", "metric_key", "max_results", "page_token", "path", "run_uuid")
    for path in of_mlflow("GET"):
        for name in names:
            for odd in (*map(str, ODD), "\x00", "%00"):
                answer = await world.http.get(path.replace("{artifact_path:path}", "1/1-1/artifacts/x"), params={name: odd})
                assert answer.status_code < 500, (path, name, odd, answer.text)
    for method in ("GET", "PUT", "DELETE"):
        for odd in PATHS:
            for path in (f"{FILES}/1/1-1/artifacts/{odd}", f"{FILES}/{odd}", f"{FILES}/1/{odd}/artifacts/x"):
                answer = await world.http.request(method, path, content=b"x")
                assert answer.status_code < 500, (method, path, answer.text)
    kept = [path for path in world.shared.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(world.shared / "artifacts") for path in kept), kept


async def test_whoever_does_not_see_the_workspace_learns_nothing(world: World) -> None:
    token = (await world.http.post("/api/v1/users", json={"name": "eve"})).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert (await world.http.put(f"{FILES}/1/1-1/artifacts/secret.txt", content=b"x")).status_code == 200
    assert (await world.http.patch("/api/v1/workspaces/default", json={"private": True})).status_code == 200
    right: dict[str, Any] = {**RIGHT, "value": "1", "name": "rules2", "experiment_name": "rules", "metric_key": "k", "path": ""}
    told = re.compile(r"rules\b|secret|n\.pt")
    for route in (route for route in ROUTES if " /mlflow/" in route):
        method, _, path = route.partition(" ")
        path = path.replace("{artifact_path:path}", "1/1-1/artifacts/secret.txt")
        given: dict[str, Any] = (
            {"params": {name: right[name] for name in QUERIES.get(path, ())}} if method == "GET" else {"json": right}
        )
        answer = await world.http.request(method, path, headers=headers, **given)
        assert answer.status_code < 500, (route, answer.text)
        if answer.status_code == 200:
            assert answer.json() in ({}, {"experiments": []}, {"runs": []}, {"models": []}, {"files": []}), (route, answer.text)
        assert not told.search(answer.text.replace("'rules'", "")), (route, answer.text)
    async with httpx.AsyncClient(base_url=world.http.base_url, timeout=120) as stranger:
        assert (await stranger.post(f"{API}/runs/search", json={})).status_code == 401


QUERIES = {
    f"{API}/experiments/get": ("experiment_id",),
    f"{API}/experiments/get-by-name": ("experiment_name",),
    f"{API}/runs/get": ("run_id",),
    f"{API}/metrics/get-history": ("run_id", "metric_key"),
    f"{API}/artifacts/list": ("run_id",),
    FILES: (),
}
