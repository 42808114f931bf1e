"""Notices that a cloud gives a machine of its end: what the agent asks, what it makes of the answers, and what harms it not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from aiohttp import web

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tenuto.workers.agent import end_notices as module
from tenuto.workers.agent.departure import NOTICE_SECONDS_MIN, STOP_SECONDS, Departure
from tenuto.workers.agent.end_notices import EndNotices, aws, gcp, metadata
from tests.support.metadata_server import MetadataServer, metadata_server
from tests.support.ports import own_port
from tests.support.waiting import until_on_loop

WAIT_SECONDS_MAX = 60.0


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MetadataServer]:
    for name in ("TROUBLE_SECONDS_FIRST", "TROUBLE_SECONDS_MAX"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(aws.Spot, "pause_seconds", 0.01)
    monkeypatch.setattr(aws.Maintenance, "pause_seconds", 0.01)
    monkeypatch.setattr(gcp.MetadataValue, "pause_seconds", 0.01)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with metadata_server() as found:
        yield found


@asynccontextmanager
async def watching(cloud: str, url: str, **changes: float) -> AsyncIterator[Departure]:
    settings = Settings(end_notice=cloud, end_notice_url=url, **changes)  # type: ignore[arg-type]
    departure = Departure(settings, SystemClock())
    task = asyncio.create_task(EndNotices(settings, departure, SystemClock()).run())
    try:
        yield departure
        assert not task.done()
    finally:
        await stop_task(task)


async def until(what: Callable[[], object]) -> None:
    await until_on_loop(what)


def in_seconds(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("action", aws.ACTIONS)
async def test_a_spot_instance_that_will_end_saves_at_once(server: MetadataServer, action: str) -> None:
    async with watching("aws", server.url) as departure:
        await until(lambda: len(server.asked) >= 8)
        assert departure.leaving == ""
        await server.put("spot/instance-action", f'{{"action": "{action}", "time": "{in_seconds(120)}"}}')
        await until(lambda: departure.leaving == "now")
    left = departure.seconds_left
    assert left is not None
    assert 0 < left <= 120 - STOP_SECONDS
    assert departure.by_signal, "SIGTERM is the end from then on"
    assert set(server.asked) == {
        "PUT latest/api/token 200",
        "GET latest/meta-data/spot/instance-action 404",
        "GET latest/meta-data/spot/instance-action 200",
        "GET latest/meta-data/events/recommendations/rebalance 404",
        "GET latest/meta-data/events/maintenance/scheduled 404",
    }
    assert server.asked.count("PUT latest/api/token 200") == 2, "one token for each thing that is asked for, and kept"


async def test_a_spot_instance_that_is_likely_to_end_begins_nothing_new(server: MetadataServer) -> None:
    async with watching("aws", server.url) as departure:
        await server.put("events/recommendations/rebalance", f'{{"noticeTime": "{in_seconds(0)}"}}')
        await until(lambda: departure.leaving == "soon")
        assert departure.leaves_at_us is None
        await server.put("spot/instance-action", f'{{"action": "terminate", "time": "{in_seconds(120)}"}}')
        await until(lambda: departure.leaving == "now")


async def test_a_token_that_is_taken_no_more_is_replaced(server: MetadataServer) -> None:
    async with watching("aws", server.url) as departure:
        await until(lambda: len(server.asked) >= 8)
        server.tokens.clear()
        await server.put("spot/instance-action", f'{{"action": "terminate", "time": "{in_seconds(120)}"}}')
        await until(lambda: departure.leaving == "now")


async def test_maintenance_is_the_known_end_and_the_earliest_counts(server: MetadataServer) -> None:
    def event(seconds: float, state: str) -> str:
        at = format_datetime(datetime.fromtimestamp(time.time() + seconds, UTC), usegmt=True)[5:]
        return f'{{"NotBefore": "{at}", "Code": "instance-stop", "EventId": "i-1", "State": "{state}"}}'

    events = [event(90_000, "active"), event(100, "completed"), event(7_000, "active")]
    await server.put("events/maintenance/scheduled", f"[{', '.join(events)}]")
    async with watching("aws", server.url) as departure:
        await until(lambda: departure.leaves_at_us is not None)
        assert departure.leaving == ""
        left = departure.seconds_left
        assert left is not None
        assert 6_000 < left < 7_000


async def test_a_preempted_instance_of_google_saves_at_once(server: MetadataServer) -> None:
    async with watching("gcp", server.url) as departure:
        await until(lambda: len(server.asked) >= 2)
        await asyncio.sleep(0.1)
        assert len(server.asked) <= 2, "it waits for the change, and asks no more meanwhile"
        await server.put("instance/preempted", "TRUE")
        await until(lambda: departure.leaving == "now")
        assert departure.notice == "the instance was preempted"
    left = departure.seconds_left
    assert left is not None
    assert 0 < left <= gcp.PREEMPTED_SECONDS - STOP_SECONDS


async def test_maintenance_that_ends_an_instance_of_google(server: MetadataServer) -> None:
    async with watching("gcp", server.url) as departure:
        await until(lambda: len(server.asked) >= 2)
        await server.put("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
        await until(lambda: len(server.asked) >= 3)
        assert departure.leaving == "", "a live migration ends nothing"
        await server.put("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        await until(lambda: departure.leaving == "now")


async def test_a_service_that_answers_at_once_is_not_asked_in_a_loop(
    server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        await real(0.01)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="FALSE", headers={"Metadata-Flavor": "Google", "ETag": "same"})

    real, server.bad = asyncio.sleep, answer
    async with watching("gcp", server.url):
        monkeypatch.setattr(asyncio, "sleep", pause)
        while len(server.asked) < 6:
            await real(0.01)
    assert len(paused) >= len(server.asked) - 3


async def huge(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Metadata-Flavor": "Google"})
    await response.prepare(request)
    for _ in range(10_000):  # until the client goes
        await response.write(b'{"action": "terminate"' + b" " * (1 << 16))
    return response


async def silent(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(WAIT_SECONDS_MAX)
    return web.Response()


def said(text: str, status: int = 200, **headers: str) -> Callable[[web.Request], object]:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            return web.Response(text="token")
        return web.Response(text=text, status=status, headers={"Metadata-Flavor": "Google", **headers})

    return answer


DEEP = "[" * 8_000
HOSTILE = {
    "huge": huge,
    "silent": silent,
    "page": said("<html>Sign in to the network</html>"),
    "other": said('{"action": "dance", "time": "2017-09-18T08:22:00Z"}'),
    "untimely": said('{"action": "terminate", "time": "99999-01-01T00:00:00Z"}'),
    "null": said('{"action": null, "time": 5, "noticeTime": []}'),
    "deep": said(DEEP),
    "zeros": said("\0" * 100),
    "error": said("", 500),
    "elsewhere": said("", 302, Location="http://127.0.0.1:1/"),
    "etag": said("MAYBE", ETag="x" * 5_000),
}


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("kind", HOSTILE)
async def test_rubbish_neither_ends_the_agent_nor_fills_its_log(
    server: MetadataServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cloud: str, kind: str
) -> None:
    monkeypatch.setattr(metadata, "ANSWER_SECONDS_MAX", 0.1)
    server.bad = HOSTILE[kind]  # type: ignore[assignment]
    with caplog.at_level(logging.INFO, "tenuto"):
        async with watching(cloud, server.url) as departure:
            await until(lambda: len(server.asked) >= 16 and caplog.records)
    assert (departure.leaving, departure.leaves_at_us) == ("", None)
    [record] = caplog.records
    assert "no notice of the machine's end is seen" in record.getMessage()


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
async def test_a_service_that_comes_late_is_heard(server: MetadataServer, cloud: str) -> None:
    port = own_port()
    async with watching(cloud, f"http://127.0.0.1:{port}") as departure:
        late = MetadataServer()
        late.values |= {
            "instance/preempted": "TRUE",
            "spot/instance-action": f'{{"action": "stop", "time": "{in_seconds(120)}"}}',
        }
        try:
            await late.start(port)
            await until(lambda: departure.leaving == "now")
        finally:
            await late.stop()


async def test_clocks_that_differ_leave_time_to_save(server: MetadataServer) -> None:
    await server.put("spot/instance-action", '{"action": "terminate", "time": "2017-09-18T08:22:00Z"}')
    async with watching("aws", server.url) as departure:
        await until(lambda: departure.leaving == "now")
    left = departure.seconds_left
    assert left is not None
    assert left > 0
    assert left <= NOTICE_SECONDS_MIN


@pytest.mark.parametrize(
    ("cloud", "url", "words"),
    [
        ("azure", "", "TENUTO_END_NOTICE is 'azure', but must be aws, gcp or empty."),
        ("aws", "file:///etc/passwd", "must be an address such as http://169.254.169.254"),
        ("aws", "http://", "must be an address"),
        ("gcp", "http://[::1", "must be an address"),
        ("gcp", "http://user:password@host", "must be an address"),
    ],
)
def test_settings_that_do_not_fit_are_refused(cloud: str, url: str, words: str) -> None:
    settings = Settings(end_notice=cloud, end_notice_url=url)
    with pytest.raises(SettingsError) as caught:
        EndNotices(settings, Departure(settings, SystemClock()), SystemClock())
    assert words in str(caught.value)
