"""Events over REST: exact payloads, live updates without gap or repetition, bounds."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import httpx
import numpy
import pytest

from tenuto.kernel.eventlog import Append
from tenuto.kernel.http_serving import bind
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event, decode_event
from tenuto.schemas.events.trial import (
    TrialProgressed,
)
from tenuto.services.gateway.log.handling import recent_events
from tenuto.services.gateway.log.queries import event_search
from tenuto.services.gateway.read_models.explain import encode_told
from tests.support.gateway_world import (
    World,
    gateway_world,
    granted,
    requested,
)
from tests.support.metric_points import store_columns
from tests.support.waiting import SECONDS_MAX


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


async def test_events_come_with_their_exact_payloads(world: World) -> None:
    for _ in range(3):
        await world.submit()
    await world.record(requested(1))
    recorded = await world.log.read(0)
    page = await world.http.get("/api/v1/events")
    assert page.content == b"[" + b",".join(encode_told(event) for event in recorded) + b"]"
    assert all(event.payload in page.content for event in recorded)
    assert [item["position"] for item in await world.get("/events?after=1&limit=2")] == [2, 3]
    assert [item["position"] for item in await world.get("/events?experiment=1&upto=4")] == [1, 4]
    assert await world.get("/events?after=4") == []
    verified = (await world.http.post("/api/v1/log/verify")).json()
    assert (verified["ok"], verified["events"], verified["head"], verified["tampered"]) == (True, 4, 4, None)


async def test_events_are_found_by_what_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        await world.submit()
    await world.record(requested(1), requested(2))

    async def found(query: str) -> list[int]:
        return [item["position"] for item in await world.get(f"/events/search?{query}")]

    assert await found("") == [5, 4, 3, 2, 1]
    assert await found("type=TrialRequested,AgentLost") == [5, 4]
    assert await found("service=user") == await found("service=user:admin") == [3, 2, 1]
    assert await found("service=user:adm") == await found("service=sea") == await found("type=Nonsense") == []
    assert await found("experiment=1") == [5, 4, 1]
    assert await found("after=2&before=4") == [3]
    [second] = await world.get("/events/search?after=1&before=3")
    assert await found(f"until_us={second['time_us']}&service=user") == [2, 1]
    assert await found(f"since_us={second['time_us']}&service=user") == [3, 2]

    monkeypatch.setattr(event_search, "LOOKED_MAX", 2)  # a page may be empty, and leads on
    page, positions = "/api/v1/events/search?type=ExperimentSubmitted&limit=2", list[int]()
    for pages in range(1, 9):  # noqa: B007
        answer = await world.http.get(page)
        positions += [item["position"] for item in answer.json()]
        if "link" not in answer.headers:
            break
        assert answer.headers["Tenuto-More"] == "true"
        page = page.partition("?")[0] + answer.headers["link"][1:].partition(">")[0]
    assert (positions, pages) == ([3, 2, 1], 3)


async def test_events_of_some_types_of_an_experiment_come_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        await world.submit()
    await world.record(*(item for number in range(1, 6) for item in (requested(number), granted(f"1-{number}-1"))))
    monkeypatch.setattr(event_search, "LOOKED_MAX", 4)  # of eleven: a page may have less than it may, and leads on
    page, positions = "/api/v1/events?experiment=1&type=TrialRequested,AgentLost&limit=3", list[int]()
    for pages in range(1, 9):  # noqa: B007
        answer = await world.http.get(page)
        assert {item["type"] for item in answer.json()} <= {"TrialRequested"}
        positions += [item["position"] for item in answer.json()]
        if "link" not in answer.headers:
            break
        page = page.partition("?")[0] + answer.headers["link"][1:].partition(">")[0]
    assert (positions, pages) == ([3, 5, 7, 9, 11], 3)
    assert [item["position"] for item in await world.get("/events?experiment=1&type=TrialRequested&after=3&upto=8")] == [5, 7]
    assert await world.get("/events?experiment=2&type=TrialRequested") == []
    assert (await world.error("GET", "/events?type=TrialRequested"))[1] == "invalid"


async def test_an_event_names_its_cause_and_what_followed(world: World) -> None:
    await world.submit()
    [submitted] = await world.log.read(0)
    for number in (1, 2):
        data = requested(number)
        event = Event(uuid4(), data.stream(), data.TYPE, 1, number, data.to_json(), "test/1", "1", causation_id=submitted.id)
        await world.log.append(Append([event]))
    links = await world.get("/events/1/links")
    assert (links["cause"], [item["position"] for item in links["followers"]]) == (None, [2, 3])
    links = await world.get("/events/3/links")
    assert (links["event"]["position"], links["cause"]["position"], links["followers"]) == (3, 1, [])
    assert await world.error("GET", "/events/9/links") == (404, "not_found", "There is no event 9.")


async def listen(world: World, count: int, path: str, **headers: str) -> list[tuple[int, Event]]:
    """The first messages of a stream, with their ids."""
    found: list[tuple[int, Event]] = []
    async with world.http.stream("GET", f"/api/v1/events/stream{path}", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        position = 0
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                position = int(line[4:])
            elif line.startswith("data: "):
                found.append((position, decode_event(line[6:].encode())))
                if len(found) == count:
                    break
    return found


async def test_live_updates_go_on_from_any_position_without_gap_or_repetition(world: World) -> None:
    await world.submit()
    total = 1_300  # more than two pages
    writer = asyncio.create_task(write_progress(world, total - 2))
    whole = await listen(world, total, "")
    await writer
    recorded = await world.log.read(0, 5_000)
    assert [position for position, _ in whole] == [event.position for event in recorded]
    assert [event for _, event in whole] == recorded
    for cut in (0, 1, 499, 500, 501, total - 1):
        assert await listen(world, total - cut, "?after=7", **{"Last-Event-ID": str(cut)}) == whole[cut:]
    assert await listen(world, 5, f"?after={total - 5}") == whole[-5:]


async def write_progress(world: World, count: int) -> None:
    await world.record(requested(1))
    for start in range(0, count, 50):
        await world.record(
            *(
                TrialProgressed(trial_id="1-1", allocation_id="1-1-1", batches=number, length=number)
                for number in range(start, min(start + 50, count))
            )
        )


async def test_live_updates_of_one_experiment_leave_the_others_out(world: World) -> None:
    await world.submit()
    listener = asyncio.create_task(listen(world, 2, "?experiment=2"))
    await world.submit()
    await world.record(requested(1))
    await world.http.post("/api/v1/experiments/2/pause")
    assert [(position, event.type) for position, event in await listener] == [
        (2, "ExperimentSubmitted"),
        (4, "ExperimentPauseRequested"),
    ]


async def test_a_wrong_last_event_id_is_refused(world: World) -> None:
    assert (await world.error("GET", "/events/stream", headers={"Last-Event-ID": "x"}))[:2] == (400, "invalid")


async def test_streams_end_when_the_service_stops(world: World) -> None:
    await world.submit()
    async with world.http.stream("GET", "/api/v1/events/stream") as response:
        lines = response.aiter_lines()
        assert json.loads((await anext(line async for line in lines if line.startswith("data: ")))[6:])["position"] == 1
        world.service.doors.log.tail.close()
        assert [line async for line in lines if line.startswith("data: ")] == []


async def test_a_quiet_stream_still_moves_the_clients_position(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that the filter leaves out are not read again after a reconnect."""
    monkeypatch.setattr("tenuto.services.gateway.log.handling.tail.KEEPALIVE_SECONDS", 0.01)
    await world.submit()
    await world.submit()
    async with world.http.stream("GET", "/api/v1/events/stream?experiment=1&after=1") as response:
        assert "id: 2" in [line async for line in until(response.aiter_lines(), "id: 2")]


async def test_a_stream_of_one_experiment_is_kept_alive_while_others_are_busy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever wakes it is filtered out; without a word its client would take the connection for dead."""
    monkeypatch.setattr("tenuto.services.gateway.log.handling.tail.KEEPALIVE_SECONDS", 1.0)
    await world.submit()
    await world.submit()

    async def be_busy() -> None:
        while True:
            await world.http.patch("/api/v1/experiments/2", json={"priority": 1 + len(found) % 9})
            found.append(1)

    found: list[int] = []
    busy = asyncio.create_task(be_busy())
    async with asyncio.timeout(SECONDS_MAX), world.http.stream("GET", "/api/v1/events/stream?experiment=1&after=1") as response:
        async for line in response.aiter_lines():
            if line == ": keep-alive" and len(found) > 2:
                break
    await stop_task(busy)


async def until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


async def test_many_streams_read_the_log_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.submit()
    recent, reads = world.service.doors.log.tail._recent, []
    read = recent._log.read

    async def counted(*where: Any, **more: Any) -> Any:
        if more.get("bytes_max") == recent_events.PAGE_BYTES:
            reads.append(where)
        return await read(*where, **more)

    async with world.http.stream("GET", f"/api/v1/events/stream?after={2**61}") as beyond:  # changes nothing for the others
        await anext(beyond.aiter_lines())
    monkeypatch.setattr(recent._log, "read", counted)
    listeners = [asyncio.create_task(listen(world, 5, "?after=1")) for _ in range(12)]
    for number in range(1, 6):
        await world.record(requested(number))
    for listener in listeners:
        assert [position for position, _ in await listener] == [2, 3, 4, 5, 6]
    assert 1 <= len(reads) <= 12, "each by itself would read five times"


async def test_what_is_kept_for_streams_is_what_the_log_has(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("PAGE_EVENTS", 3), ("KEPT_EVENTS_MAX", 7), ("KEPT_BYTES_MAX", 2_000)):
        monkeypatch.setattr(recent_events, name, most)
    for _ in range(2):
        await world.submit()
    recent, random = recent_events.RecentEvents(world.log), Random(4)
    for number in range(1, 25):
        await world.record(
            requested(number).model_copy(update={"experiment_id": (of := random.choice((1, 2))), "trial_id": f"{of}-{number}"})
        )
        if random.random() < 0.5:
            continue
        head = await world.log.head()
        recorded = await world.log.read(0, 1_000)
        for after in random.sample(range(head + 1), min(head, 6)):
            for experiment in (None, "1", "2"):
                found, behind, more = [], after, True
                while more:
                    page = await recent.behind(behind, head, experiment)
                    assert len(page) <= 3
                    found += page
                    more, behind = page.more, page[-1].position if page else head
                expected = [item for item in recorded if item.position > after and experiment in (None, item.correlation_id)]
                assert found == expected
                assert all(b"id: %d\n" % item.position in recent.message(item) for item in found)
        assert len(recent._messages) <= len(recent._events) <= 7


async def test_too_many_followers_are_turned_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.services.gateway.log.handling.tail.CLIENTS_MAX", 1)
    await world.submit()
    async with world.http.stream("GET", "/api/v1/events/stream") as response:
        lines = response.aiter_lines()  # kept: an iterator that is thrown away closes its connection
        await anext(lines)
        assert (await world.error("GET", "/events/stream"))[:2] == (429, "too_many")


def test_answers_leave_at_once() -> None:
    """A socket whose protocol is named gets TCP_NODELAY from asyncio and uvloop: without it a kept connection waits 44 ms."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_a_long_history_holds_up_nobody(world: World) -> None:
    """Before it was sent in pieces, nobody else was answered for the seconds that 50,000 points take."""
    await world.submit()
    await world.record(requested(1))
    count = 50_000
    await store_columns(world.log.pool, 1, {"loss": numpy.full(count, 0.5), "accuracy": numpy.full(count, math.nan)})
    answers = 0

    async def ask() -> None:
        nonlocal answers
        async with httpx.AsyncClient(base_url=world.http.base_url, headers=world.http.headers, timeout=120) as other:
            while True:
                assert (await other.get("/api/v1/user")).status_code == 200
                answers += 1

    bystander = asyncio.create_task(ask())
    points = await world.get("/trials/1-1/metrics")
    assert not bystander.done(), "its questions were answered"
    await stop_task(bystander)
    assert [point["batches"] for point in points] == list(range(1, 50_001))
    assert points[0]["metrics"] == {"loss": 0.5, "accuracy": "NaN"}
    assert answers > 20, "others were not answered in between"
