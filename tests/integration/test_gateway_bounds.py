"""Long, slow and unread requests and answers cost only their user: a real gateway, and events of the largest size of a script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest

from tenuto.client import Client, Target
from tenuto.kernel import http_connections
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import ValidationReported
from tenuto.services.gateway.http import gate, long_answers
from tenuto.services.gateway.read_models import rows
from tenuto.services.gateway.trials.adapters.downloads import DownloadRefused
from tenuto.services.gateway.trials.adapters.records import Records
from tenuto.services.gateway.trials.routes import checkpoints
from tests.support.gateway_world import World, gateway_world, requested, saved
from tests.support.metric_points import store
from tests.support.waiting import ended, until_on_loop

ANSWER_SECONDS_MAX = 120.0
LONG = {name * 250_000: 0.5 for name in "abcd"}
"""A megabyte: no report may bring so much any more, but the record of earlier ones is as it is."""


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        await made.submit()
        await made.record(requested(1), requested(2))
        yield made


def long(batches: int) -> ValidationReported:
    return ValidationReported(trial_id="1-1", allocation_id="1-1-1", batches=batches, length=batches, metrics=LONG)


async def test_long_histories_come_in_pages_that_say_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.record(*map(long, range(1, 13)))
    head = await world.log.head()
    answer = await world.http.get("/api/v1/events?limit=5000")
    assert answer.headers["Tenuto-More"] == "true"
    assert len(answer.content) < 10 << 20
    assert "Tenuto-More" not in (await world.http.get(f"/api/v1/events?after={head - 1}")).headers

    client = Client(Target(str(world.http.base_url), world.http.headers["Authorization"].removeprefix("Bearer "), ""))
    found = await asyncio.to_thread(lambda: [json.loads(event)["position"] for event in client.event_bodies()])
    assert found == list(range(1, head + 1))

    streamed = 0
    async for piece in world.service.doors.log.tail.messages(0):
        assert len(piece) < 3 << 20
        streamed += piece.count(b"\nevent: ")
        if streamed == head:
            break

    monkeypatch.setattr(rows, "ROWS_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(rows, "PIECE_ROWS", 10)
    await store(world.log.pool, 1, {batches: {"x" * 50_000: batches} for batches in range(1, 101)})
    points: list[int] = []
    while True:
        answer = await world.http.get(f"/api/v1/trials/1-1/metrics?after={points[-1] if points else -1}")
        assert len(answer.content) < 2 << 20
        points += [point["batches"] for point in answer.json()]
        if "Tenuto-More" not in answer.headers:
            break
    assert points == list(range(1, 101))


async def test_an_answer_that_nobody_reads_is_cut_and_holds_up_its_user_only(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_connections, "UNREAD_SECONDS", 2.0)
    caplog.set_level("INFO", http_connections.logger.name)
    await world.record(*map(long, range(1, 13)))
    token = (await world.http.post("/api/v1/users", json={"name": "mallory"})).json()["token"]

    async def unread() -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        made.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(made, ("127.0.0.1", world.service.port))
        head = f"GET /api/v1/events?limit=5000 HTTP/1.1\r\nHost: tenuto\r\nAuthorization: Bearer {token}\r\n\r\n"
        await loop.sock_sendall(made, head.encode())
        return made

    opened = []
    try:
        for _ in range(long_answers.HISTORIES_PER_USER_MAX):
            opened.append(await unread())
            assert (await asyncio.get_running_loop().sock_recv(opened[-1], 15)).startswith(b"HTTP/1.1 200")
        opened.append(await unread())
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            assert len(await world.get("/events?limit=1")) == 1  # another user's
            assert await asyncio.get_running_loop().sock_recv(opened[-1], 15)
            assert "a connection is cut: its client does not read the answer" in caplog.messages
            received = 0
            try:
                while piece := await asyncio.get_running_loop().sock_recv(opened[0], 1 << 20):
                    received += len(piece)
            except ConnectionResetError:
                pass
            assert received < 8 << 20
    finally:
        for item in opened:
            item.close()


async def test_one_user_has_so_many_downloads_at_once_and_others_do_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads of a store that answers late: the fifth of a user waits for the first, a stranger's and lists do not."""
    opened, go_on = Counter[str](), threading.Event()

    def late(*_: object) -> Any:
        opened[gate.asking()] += 1
        go_on.wait(ANSWER_SECONDS_MAX)
        raise DownloadRefused("It is away.")

    monkeypatch.setattr(checkpoints, "open_checkpoint", late)
    await world.record(saved(10))
    [checkpoint] = await world.get("/checkpoints")
    path = f"/api/v1/checkpoints/{checkpoint['id']}/download"
    tokens = {name: (await world.http.post("/api/v1/users", json={"name": name})).json()["token"] for name in ("mallory", "eve")}

    def download(name: str) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(world.http.get(path, headers={"Authorization": f"Bearer {tokens[name]}"}))

    asked = [download("mallory") for _ in range(long_answers.DOWNLOADS_PER_USER_MAX + 1)]
    try:
        await until_on_loop(lambda: opened["mallory"], lambda count: count >= long_answers.DOWNLOADS_PER_USER_MAX)
        asked.append(download("eve"))
        await until_on_loop(lambda: opened["eve"], gone=ended(asked[-1]))
        headers = {"Authorization": f"Bearer {tokens['mallory']}"}
        assert (await world.http.get("/api/v1/checkpoints", headers=headers)).status_code == 200
        assert opened["mallory"] == long_answers.DOWNLOADS_PER_USER_MAX
    finally:
        go_on.set()
        assert {(await one).status_code for one in asked} == {410}
    assert opened["mallory"] == long_answers.DOWNLOADS_PER_USER_MAX + 1


async def test_a_verification_holds_up_no_submission_and_one_user_has_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def endless(*_: object) -> list[str]:
        reading.set()
        go_on.wait(ANSWER_SECONDS_MAX)
        return []

    monkeypatch.setattr(checkpoints, "verify_checkpoint", endless)
    await world.record(saved(10))
    [checkpoint] = await world.get("/checkpoints")
    path = f"/checkpoints/{checkpoint['id']}/verify"
    verifying = asyncio.create_task(world.http.post(f"/api/v1{path}"))
    try:
        await asyncio.to_thread(reading.wait, ANSWER_SECONDS_MAX)
        status, code, message = await world.error("POST", path)
        assert (status, code) == (429, "too_many")
        assert "being verified for you already" in message
        threads = anyio.to_thread.current_default_thread_limiter()
        for number in range(int(threads.total_tokens)):  # downloads of a store that is away
            await threads.acquire_on_behalf_of(number)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                assert (await world.submit()).status_code == 201
                assert (await world.http.get("/api/v1/stores")).status_code == 200
        finally:
            for number in range(int(threads.total_tokens)):
                threads.release_on_behalf_of(number)
    finally:
        go_on.set()
        assert (await verifying).status_code == 200
    assert (await world.http.post(f"/api/v1{path}")).status_code == 200


async def test_histories_are_compared_off_the_event_loop_and_shown_within_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reported(trial: str, batches: int) -> ValidationReported:
        metrics = {f"m{number}": float(number) for number in range(100)} | {
            "accuracy": 0.5 if batches < 90 else len(trial) / batches
        }
        if trial == "1-2" and batches >= 90:
            metrics["accuracy"] = 0.0
        return ValidationReported(trial_id=trial, allocation_id=f"{trial}-1", batches=batches, length=batches, metrics=metrics)

    await world.record(*(reported(trial, batches) for trial in ("1-1", "1-2") for batches in range(1, 121)))
    decoded: set[int] = set()
    plain = Event.data.func  # type: ignore[attr-defined]

    def data(event: Event) -> Any:
        if event.type == ValidationReported.TYPE:
            decoded.add(threading.get_ident())
        return plain(event)

    monkeypatch.setattr(Event.data, "func", data)
    made, _ = await Records(world.log).results("1-1")
    assert len(made) == 120
    assert decoded
    assert threading.get_ident() not in decoded
    results = (await world.get("/diff?a=1-1&b=1-2"))["results"]
    assert results["validations"] == 120
    assert results["metrics_left_out"] == 120 * 101 - 10_000
    assert len(results["metrics"]) == 10_000
    assert results["first_difference_batches"] == 90
    assert any(not pair["equal"] for pair in results["metrics"])
    assert results["metrics_equal"] is False
