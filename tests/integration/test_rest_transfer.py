"""HEAD, tags, compression, other origins and paces, on a real gateway."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.kernel.settings import SettingsError
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of
from tests.support.gateway_world import World, gateway_world, granted, requested, saved, validated
from tests.support.waiting import SECONDS_MAX

ROUTES = permissions_of(SUBJECTS).rules

ORIGIN = {"Origin": "https://page.example.com"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}


async def raw(world: World, path: str, **headers: str) -> httpx.Response:
    """The answer with its body as it was sent."""
    request = world.http.build_request("GET", f"/api/v1{path}", headers={"Accept-Encoding": "identity", **headers})
    answer: httpx.Response = await world.http.send(request, stream=True)
    answer._content = b"".join([chunk async for chunk in answer.aiter_raw()])
    return answer


async def test_answers_travel_as_asked_for(database: Any, tmp_path: Path) -> None:
    async with gateway_world(database, tmp_path) as world:
        for _ in range(12):
            await world.submit()
        await world.record(
            requested(1), granted("1-1-1"), *(validated(number, accuracy=0.1) for number in range(1, 400)), saved(10)
        )
        await check_tags(world)
        await check_compression(world)
        await check_head(world)
        await check_no_origin(world)


async def check_tags(world: World) -> None:
    for path in (
        "/experiments",
        "/experiments/1",
        "/experiments/1/trials?after=1",
        "/openapi.json",
        "/docs",
        "/user",
        "/webhooks",
    ):
        first = await raw(world, path)
        assert first.status_code == 200
        assert first.headers["Cache-Control"] == "private, no-cache", path
        again = await raw(world, path, **{"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", first.headers["ETag"]), path
        assert "content-length" not in again.headers
    listed = await raw(world, "/experiments?limit=1")
    assert "Link" in listed.headers
    await world.http.post("/api/v1/experiments/12/pause")
    changed = await raw(world, "/experiments?limit=1", **{"If-None-Match": listed.headers["ETag"]})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != listed.headers["ETag"]
    refused = await raw(world, "/experiments/99", **{"If-None-Match": "*"})
    assert refused.status_code == 404, "an error is never what somebody has already"
    stranger = await raw(world, "/experiments", **{"If-None-Match": listed.headers["ETag"], "Authorization": "Bearer x"})
    assert stranger.status_code == 401


async def check_compression(world: World) -> None:
    for path in ("/experiments", "/trials/1-1/validations", "/openapi.json"):  # in one piece, in several, larger than a packet
        plain, packed = await raw(world, path), await raw(world, path, **{"Accept-Encoding": "br, gzip"})
        assert packed.headers["Content-Encoding"] == "gzip", path
        assert gzip.decompress(packed.content) == plain.content
        assert len(packed.content) < len(plain.content) / 2
        assert "Accept-Encoding" in plain.headers["Vary"]
        assert packed.headers.get("ETag") == plain.headers.get("ETag"), "the tag is weak: of what is said, not of its bytes"
    for path in ("/user", "/experiments/1/metrics/table?kind=validation"):  # small; numbers
        assert "Content-Encoding" not in (await raw(world, path, **{"Accept-Encoding": "gzip"})).headers
    async with world.http.stream("GET", "/api/v1/events/stream", headers={"Accept-Encoding": "gzip"}) as live:
        assert "Content-Encoding" not in live.headers
        assert (await anext(live.aiter_raw())).startswith(b"retry:")


async def check_head(world: World) -> None:
    known = {
        "experiment_id": "1",
        "trial_id": "1-1",
        "checkpoint_id": "1-1-1-10",
        "name": "admin",
        "number": "1",
        "automation": "none",
        "position": "1",
        "workspace": "default",
        "pool": "default",
    }
    paths = defaultdict(lambda: "none", known)
    asked = 0
    for route in ROUTES:
        method, _, path = route.partition(" ")
        if method != "GET" or path == "/healthz":
            continue
        path = path.replace(":path}", "}").format_map(paths) if "{" in path else path
        async with asyncio.timeout(SECONDS_MAX):
            head = await world.http.head(path)
            if path.endswith(("/stream", "/download")):
                assert head.status_code in (200, 410), path  # endless, and of a checkpoint whose files are not there
                continue
            body = await world.http.get(path)
        assert head.status_code == body.status_code, path
        assert head.content == b""
        for name in ("Content-Type", "Content-Length", "Content-Encoding"):
            assert head.headers.get(name) == body.headers.get(name) or name == "Content-Length", path
        asked += 1
    assert asked > 25
    head, body = await raw_head(world, "/experiments/1"), await raw(world, "/experiments/1")
    assert int(head.headers["Content-Length"]) == len(body.content)
    refused = await world.http.request("PUT", "/api/v1/experiments")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, POST")
    stranger = await world.http.head("/api/v1/experiments", headers={"Authorization": "Bearer x"})
    assert stranger.status_code == 401


async def raw_head(world: World, path: str) -> httpx.Response:
    answer: httpx.Response = await world.http.head(f"/api/v1{path}", headers={"Accept-Encoding": "identity"})
    return answer


async def check_no_origin(world: World) -> None:
    """Without the setting, nothing tells a browser that another page may read."""
    for answer in (
        await world.http.get("/api/v1/experiments", headers=ORIGIN),
        await world.http.options("/api/v1/experiments/1", headers=PREFLIGHT),
        await world.http.get("/api/v1/openapi.json", headers=ORIGIN),
    ):
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    assert (await world.http.options("/api/v1/experiments/1", headers=PREFLIGHT)).status_code == 405


async def test_only_named_origins_may_read_and_each_token_has_its_pace(database: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"cors_origins": "https://page.example.com", "token_requests_per_second_max": 0.01}
    async with gateway_world(database, tmp_path, **settings) as world:
        preflight = await world.http.options("/api/v1/experiments/1", headers={**PREFLIGHT, "Authorization": ""})
        assert preflight.status_code == 200
        assert preflight.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]
        assert "PATCH" in preflight.headers["Access-Control-Allow-Methods"]
        for path, status in (("/experiments", 200), ("/experiments/9", 404)):
            answer = await world.http.get(f"/api/v1{path}", headers=ORIGIN)
            assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (status, ORIGIN["Origin"])
            assert "ETag" in answer.headers["Access-Control-Expose-Headers"]
            assert "Access-Control-Allow-Credentials" not in answer.headers
        other = await world.http.get("/api/v1/experiments", headers={"Origin": "https://evil.example.com"})
        assert "Access-Control-Allow-Origin" not in other.headers
        await check_paces(world)


async def check_paces(world: World) -> None:
    first = (await world.http.post("/api/v1/users", json={"name": "ada"})).json()["token"]
    second = (await world.http.post("/api/v1/users/ada/tokens", json={})).json()["token"]
    answers = [
        await world.http.get("/api/v1/user", headers={"Authorization": f"Bearer {token}"}) for token in (first, first, second)
    ]
    assert [answer.status_code for answer in answers] == [200, 429, 200], "another token of the same user is not held up"
    assert "Too many requests of the token" in answers[1].json()["detail"]
    assert 0 < int(answers[1].headers["Retry-After"]) <= 100


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cors_origins": "page.example.com"}, "TENUTO_CORS_ORIGINS names 'page.example.com', which is no origin"),
        ({"deletion_grace_hours": -1.0}, "TENUTO_DELETION_GRACE_HOURS is -1.0, but must be from 0 to 87600."),
        ({"deletion_grace_hours": float("nan")}, "TENUTO_DELETION_GRACE_HOURS is nan, but must be from 0 to 87600."),
    ],
)
async def test_a_wrong_setting_is_said_at_the_start(database: Any, tmp_path: Path, settings: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        async with gateway_world(database, tmp_path, **settings):
            pass
