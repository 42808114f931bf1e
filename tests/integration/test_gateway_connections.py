"""Connections that wait for their client keep nobody out: a real gateway, more of them than it has room for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.cli import cluster
from tenuto.kernel.http_connections import CONNECTIONS_MAX
from tenuto.services.gateway.http import concurrent_requests
from tenuto.services.gateway.http.connections import DoorProtocol
from tests.support.gateway_world import World, gateway_world
from tests.support.waiting import SECONDS_MAX

CONNECTIONS = 1_500
ASKED = 200
ELSEWHERE = "127.0.0.2"
"""Address of another user: all that begin with 127 are this machine's."""
HALVES = (
    b"",
    b"GET /api/v1/user HTTP/1.1\r\nHost: ten",
    b"POST /api/v1/login HTTP/1.1\r\nHost: tenuto\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
)


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def held(port: int, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections of one address: silent ones, and some with a half-sent request of each kind."""
    readers, writers = [], []
    try:
        for number in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                writer.write(HALVES[number % len(HALVES)])
            readers.append(reader)
            writers.append(writer)
        yield readers
    finally:
        for writer in writers:
            writer.transport.abort()


def elsewhere(world: World) -> httpx.AsyncClient:
    """A user at another address, whose every question is a new connection."""
    transport = httpx.AsyncHTTPTransport(local_address=ELSEWHERE, limits=httpx.Limits(max_keepalive_connections=0))
    return httpx.AsyncClient(base_url=world.http.base_url, headers=world.http.headers, transport=transport, timeout=SECONDS_MAX)


async def asked(http: httpx.AsyncClient) -> list[float]:
    """How long each answer took in seconds."""
    found = []
    for _ in range(ASKED):
        began = time.perf_counter()
        assert (await http.get("/api/v1/user")).status_code == 200
        found.append(time.perf_counter() - began)
    return sorted(found)


async def test_what_is_held_and_what_gave_way_is_in_the_status(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DoorProtocol, "gave_way", 0)
    monkeypatch.setattr(DoorProtocol, "connections_max", 20)
    token = (await world.http.post("/api/v1/users", json={"name": "ada"})).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(base_url=world.http.base_url, headers=headers) as ada,
        ada.stream("GET", "/api/v1/events/stream") as following,
    ):
        assert following.status_code == 200
        async with held(world.service.port, 30):
            door = (await world.get("/status"))["door"]
        assert door["requests"] == [
            {"whose": "the address 127.0.0.1", "under_way": sum(half.startswith(b"POST") for half in HALVES) * 10},
            {"whose": "ada", "under_way": 1},
        ]
        assert (door["connections_max"], door["requests_max"], door["turned_away"]) == (
            20,
            concurrent_requests.REQUESTS_AT_ONCE_MAX,
            0,
        )
        assert door["gave_way"] >= 10
        assert door["connections"] <= 21
        own = (await ada.get("/api/v1/status")).json()["door"]["requests"]
        assert own == [{"whose": "ada", "under_way": 2}], "this question, too"
        other = (await world.http.post("/api/v1/users", json={"name": "eve"})).json()["token"]
        eve = await ada.get("/api/v1/status", headers={"Authorization": f"Bearer {other}"})
        assert eve.json()["door"]["requests"] == [{"whose": "eve", "under_way": 1}]
    assert "a request failed" not in caplog.text, "half a request is no error of the gateway's"


def test_the_line_of_the_command() -> None:
    door = {"connections": 40, "connections_max": 900, "gave_way": 0, "turned_away": 0, "requests_max": 200, "requests": []}
    assert cluster._door(door) == "REST: 40 of 900 connections"
    busy = [{"whose": "ada", "under_way": 199}, {"whose": "eve", "under_way": 2}]
    assert cluster._door({**door, "gave_way": 7, "turned_away": 1, "requests": busy}) == (
        "REST: 40 of 900 connections, requests under way: ada 199 (at most 200 each), 7 connections gave way to others, "
        "1 were turned away"
    )
    assert cluster._door(None) == ""


async def test_another_address_is_answered_whatever_one_holds(world: World, record_property: Any) -> None:
    assert CONNECTIONS > CONNECTIONS_MAX
    async with elsewhere(world) as http:
        alone = await asked(http)
        async with held(world.service.port, CONNECTIONS):
            beside = await asked(http)
    record_property("p99 alone, beside (ms)", f"{alone[-3] * 1e3:.1f} {beside[-3] * 1e3:.1f}")


async def test_the_same_address_is_answered_too(world: World) -> None:
    async with held(world.service.port, CONNECTIONS):
        for _ in range(20):
            assert (await world.http.get("/api/v1/user", headers={"Connection": "close"})).status_code == 200


async def test_a_user_has_so_many_requests_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_requests, "REQUESTS_AT_ONCE_MAX", 3)
    tokens = {name: (await world.http.post("/api/v1/users", json={"name": name})).json()["token"] for name in ("mallory", "eve")}
    headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
    async with contextlib.AsyncExitStack() as open_:
        for _ in range(3):
            stream = world.http.stream("GET", "/api/v1/events/stream", headers=headers["mallory"])
            assert (await open_.enter_async_context(stream)).status_code == 200
        refused = await world.http.get("/api/v1/user", headers=headers["mallory"])
        assert refused.status_code == 429
        assert "mallory has 3 requests under way already, the most at once" in refused.json()["error"]["message"]
        assert refused.headers["Retry-After"]
        assert (await world.http.get("/api/v1/user", headers=headers["eve"])).status_code == 200
