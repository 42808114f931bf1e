"""A superuser of the database cuts the end off the log, and then hides one trace after the other: each time somebody knows."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.anchor_targets import targets
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append, ConsumerCheckpoint, Snapshot
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.relay import Relay
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.storage.stores import Stores, stores_of
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.anchors import Anchor, is_signed
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import TrialProgressed
from tenuto.services.gateway.app import build
from tests.integration.test_log_immutable import event as unread_event
from tests.integration.test_log_immutable import execute
from tests.integration.test_relay import stream_reaches
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from tests.support.waiting import until_async, until_on_loop

EVENTS = 12
CUT = 8
"""The attacker leaves so many."""
UNGUARDED = (
    "ALTER TABLE events DISABLE TRIGGER ALL",
    f"DELETE FROM events WHERE position > {CUT}",
    f"""UPDATE log_head SET position = {CUT}, hash = coalesce((SELECT hash FROM events WHERE position = {CUT}),
                                                              decode(repeat('00', 32), 'hex'))""",
)
TRACES = {
    "streams": "UPDATE streams s SET version = (SELECT count(*) FROM events e WHERE e.stream = s.stream)",
    "checkpoints": f"UPDATE checkpoints SET position = least(position, {CUT})",
    "snapshots": "DELETE FROM snapshots",
    "views": f"UPDATE projection_cursors SET position = least(position, {CUT})",
}


def event(number: int) -> Event:
    """As a tracker records it, of a trial that nobody knows."""
    data = TrialProgressed(trial_id=f"1-{number % 3}", allocation_id="1-1-1", batches=number, length=number)
    return replace(unread_event(number), payload=data.to_json())


@dataclass
class Door:
    log: PostgresEventLog
    http: httpx.AsyncClient
    database: Any
    anchors: Path

    async def verify(self, **body: Any) -> dict[str, Any]:
        answer = await self.http.post("/api/v1/log/verify", json=body or None)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert found["ok"] == (found["tampered"] is None)
        return found

    async def read_by_views(self) -> None:
        """Returns when the gateway has read all, too."""
        await until_async(
            self._consumers, lambda found: {"gateway", "views"} <= {item["name"] for item in found if not item["lag"]}
        )

    async def _consumers(self) -> list[dict[str, Any]]:
        return list((await self.http.get("/api/v1/status")).json()["consumers"])

    async def reason(self, **body: Any) -> str:
        tampered = (await self.verify(**body))["tampered"]
        return tampered["reason"] if tampered else "intact"


@contextlib.asynccontextmanager
async def gateway(settings: Settings, log: PostgresEventLog, bus: Any, database: Any) -> AsyncIterator[Door]:
    service = await build(settings, log, bus, SystemClock(), feed=lambda: LogFeed(log))
    running = asyncio.create_task(service.run())
    await service.started()
    headers = {"Authorization": f"Bearer {Path(settings.rest_token_file).read_text().strip()}"}
    anchors = Path(settings.anchor_targets.removeprefix("file://"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", headers=headers, timeout=60) as client:
        yield Door(log, client, database, anchors)
    await stop_task(running)


@pytest.fixture
def settings(database: Any, nats: NatsServer, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database.url,
        nats_url=nats.url,
        shared_directory=str(tmp_path / "shared"),
        rest_port=0,
        rest_token_file=str(tmp_path / "token"),
        anchor_targets=f"file://{tmp_path / 'elsewhere' / 'anchors.jsonl'}",
        anchor_key_file=str(tmp_path / "anchor.key"),
        anchor_seconds=0.0,
    )


@pytest.fixture
async def log(database: Any) -> AsyncIterator[PostgresEventLog]:
    log = await PostgresEventLog.connect(database.url)
    await log.append(Append([event(number) for number in range(1, EVENTS + 1)]))
    await log.append(Append(checkpoint=ConsumerCheckpoint("tracker"), next_position=EVENTS))
    await log.save_snapshot(Snapshot("tracker", EVENTS, EVENTS, 1, b"{}"))
    yield log
    await log.close()


async def test_a_cut_end_is_found_whatever_else_is_hidden(
    log: PostgresEventLog, settings: Settings, database: Any, nats: NatsServer
) -> None:
    bus = await bus_module.connect(settings, "test")
    relay = asyncio.create_task(Relay(log, bus, settings).run())
    try:
        await stream_reaches(bus, EVENTS)
        await stop_task(relay)
        async with gateway(settings, log, bus, database) as door:
            noted = (await door.http.post("/api/v1/log/anchor")).json()
            assert (noted["anchor"]["position"], noted["failed"]) == (EVENTS, {})
            verdict = await door.verify()
            assert (verdict["ok"], verdict["events"], verdict["anchors"], verdict["unchecked"]) == (True, EVENTS, 1, [])
            await door.read_by_views()
        await execute(database.owner_url, *UNGUARDED)
        ends = f"the end of the log is missing: it ends at position {CUT}, but "
        for knows, hiding in (
            ("a snapshot of tracker had", "snapshots"),
            ("the checkpoint of ", "checkpoints"),
            ("the view views had", "views"),
            ("the stream trial/1-", "streams"),
        ):
            tampered = (await log.verify()).tampered
            assert tampered is not None
            assert tampered.reason.startswith(ends + knows)
            await execute(database.owner_url, TRACES[hiding])
        assert (await log.verify()).tampered is None
        async with gateway(settings, log, bus, database) as door:
            assert await door.reason() == f"{ends}the bus holds {EVENTS} events of it"
            await bus.jetstream().delete_stream("TENUTO_LOG")
            assert await door.reason() == f"{ends}{settings.anchor_targets} has noted it up to {EVENTS}"
            # The log grows again past the anchor, with other events.
            await log.append(Append([replace(event(number), actor="x") for number in range(101, 111)]))
            assert await door.reason() == f"the log was another one up to here when {settings.anchor_targets} noted it"
            # The file of anchors is deleted; somebody else has kept the one that a webhook was sent.
            kept = [json.loads(line) for line in door.anchors.read_text().splitlines()]
            door.anchors.unlink()
            assert await door.reason() == "intact"
            assert (await door.verify())["unchecked"] == ["the bus has no stream TENUTO_LOG to compare with"]
            assert "was another one up to here when the given file" in await door.reason(anchors=kept)
            forged = [{**kept[0], "position": 3}]
            assert "was not signed with this cluster's key" in await door.reason(anchors=forged)
    finally:
        await stop_task(relay)
        await bus_module.close(bus)


async def test_a_log_of_which_nothing_is_left_is_found(log: PostgresEventLog, database: Any) -> None:
    await execute(
        database.owner_url,
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "TRUNCATE events",
        "UPDATE log_head SET position = 0, hash = decode(repeat('00', 32), 'hex')",
    )
    tampered = (await log.verify()).tampered
    assert tampered is not None
    assert tampered.reason.endswith(f"it ends at position 0, but a snapshot of tracker had read up to {EVENTS}")


async def test_what_the_gateway_has_folded_is_known_to_it(log: PostgresEventLog, settings: Settings, database: Any) -> None:
    async with gateway(settings, log, None, database) as door:
        await door.read_by_views()
        # Noted after a while without work, and a trace that is not meant here where that is after the cut.
        await until_async(lambda: log.checkpoint("gateway"), lambda noted: noted.position == EVENTS)
        await execute(database.owner_url, *UNGUARDED, *TRACES.values())
        assert (await door.reason()).endswith(f"the gateway has folded it up to {EVENTS}")


async def test_anchors_are_made_by_themselves_as_the_log_grows(log: PostgresEventLog, settings: Settings, database: Any) -> None:
    async with gateway(replace(settings, anchor_seconds=0.05), log, None, database) as door:

        async def noted(position: int) -> None:
            await until_on_loop(
                lambda: door.anchors.read_text() if door.anchors.exists() else "", lambda text: f'"position":{position},' in text
            )

        await noted(EVENTS)
        await log.append(Append([event(50)]))
        await noted(EVENTS + 1)
        await asyncio.sleep(0.3)
        assert len(door.anchors.read_text().splitlines()) == 2  # no note of a log that did not grow
        assert (await door.verify())["anchors"] == 2
        assert oct(door.anchors.stat().st_mode & 0o777) == "0o600"


class _Receiver(http.server.BaseHTTPRequestHandler):
    bodies: list[bytes] = []
    status = 204

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    _Receiver.bodies, _Receiver.status = [], 204
    server = http.server.HTTPServer(("127.0.0.1", 0), _Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/anchors"
    server.shutdown()
    server.server_close()


async def test_an_object_store_and_a_webhook_keep_anchors(
    log: PostgresEventLog, settings: Settings, database: Any, s3_server: S3Server, receiver: str, tmp_path: Path
) -> None:
    declared = {
        "type": "s3",
        "bucket": s3_server.bucket,
        "endpoint": s3_server.endpoint,
        "access_key": ACCESS_KEY,
        "secret_key": SECRET_KEY,
    }
    (tmp_path / "stores.yaml").write_text(json.dumps({"audit": declared}))
    bucket = "store://audit/anchors"
    both = replace(settings, anchor_targets=f"{bucket} {receiver}?token=secret", stores_file=str(tmp_path / "stores.yaml"))
    async with gateway(both, log, None, database) as door:
        noted = (await door.http.post("/api/v1/log/anchor")).json()
        assert (noted["kept"], noted["failed"]) == ([bucket, receiver], {})
        [body] = _Receiver.bodies
        assert is_signed(Anchor.from_json(body), Path(settings.anchor_key_file).read_text().strip())
    # While no gateway runs: after a while without work it notes its position once more, which is a trace of its own.
    await execute(database.owner_url, *UNGUARDED, *TRACES.values())
    [kept] = targets(both.anchor_targets, stores_of(both.shared_directory, both.stores_file))[0].read() or []
    assert kept.position == EVENTS
    _Receiver.status = 500
    async with gateway(both, log, None, database) as door:
        failed = (await door.http.post("/api/v1/log/anchor")).json()["failed"]
        assert list(failed) == [receiver]
        assert "500" in failed[receiver]
        assert (await door.reason()).endswith(f"{bucket} has noted it up to {EVENTS}")


@pytest.mark.parametrize("wrong", ["anchors.jsonl", "file:relative", "ftp://host/x", "s3://b/x", "store://B/x", "https://"])
def test_a_wrong_target_is_named(wrong: str) -> None:
    with pytest.raises(SettingsError, match="TENUTO_ANCHOR_TARGETS"):
        targets(wrong, Stores())


async def test_verifying_a_log_that_grows_finds_nothing(log: PostgresEventLog) -> None:
    async def grow() -> None:
        for number in range(200, 400):
            checkpoint = await log.checkpoint("searcher")
            await log.append(Append([event(number)], checkpoint, next_position=await log.head()))

    growing = asyncio.create_task(grow())
    while not growing.done():
        assert (await log.verify()).tampered is None
    await growing
