"""The tracker on a real bus and database: reports become events once, dead allocations are refused, bulk data is stored once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.client import Client

from tenuto.kernel.bus import ensure_streams
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.relay import Relay
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.kernel.report_tokens import load_report_tokens
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.stores import stores_of
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    CheckpointReport,
    Committed,
    LogLine,
    LogsReport,
    MetricPoint,
    MetricsReport,
    ValidationReport,
)
from tenuto.services.tracker.app import Tracker, build
from tenuto.services.tracker.core import TrackerCore
from tests.support.facts import recorded
from tests.support.metric_points import stored

WHY = Reason(rule="test")
CONFIG = ExperimentConfig.model_validate(
    {"name": "t", "entrypoint": "m:T", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 9}}}
)
SUBMITTED = ExperimentSubmitted(experiment_id=1, config=CONFIG, seed=1, context_hash="", context_size_bytes=0, user="u")
REQUESTED = TrialRequested(
    experiment_id=1, trial_id="1-1", trial_number=1, hyperparameters={}, seed=1, target_length=9, reason=WHY
)
STOPPED = TrialStopped(experiment_id=1, trial_id="1-1", outcome="completed", reason=WHY)


def granted(number: int) -> AllocationGranted:
    slots = (AgentSlots(agent_id="node", slot_ids=(0,)),)
    return AllocationGranted(
        pool="default", allocation_id=f"1-1-{number}", trial_id="1-1", experiment_id=1, slots=slots, reason=WHY
    )


def released(number: int) -> AllocationReleased:
    return AllocationReleased(pool="default", allocation_id=f"1-1-{number}", trial_id="1-1", experiment_id=1, reason=WHY)


def validation(batches: int, allocation: int = 1, **metrics: float) -> ValidationReport:
    return ValidationReport(
        trial_id="1-1", allocation_id=f"1-1-{allocation}", batches=batches, length=batches, metrics=metrics or {"loss": 0.5}
    )


class GatedFeed(LogFeed):
    """A feed that can be held back, as a busy bus would."""

    def __init__(self, log: PostgresEventLog) -> None:
        super().__init__(log)
        self.gate = asyncio.Event()
        self.gate.set()

    async def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        async for batch in super().follow(after, batch_max):
            await self.gate.wait()
            yield batch


class World:
    """An agent's side of the bus, and the other services' side of the log."""

    def __init__(self, log: PostgresEventLog, bus: Client, settings: Settings) -> None:
        self.log, self.bus, self.settings = log, bus, settings
        self.feed = GatedFeed(log)
        self.pool: asyncpg.Pool = log.pool
        self._sequences: dict[str, int] = {}
        self._running: asyncio.Task[None] | None = None
        self.tracker: Tracker

    async def start(self) -> None:
        self.tracker = await build(self.settings, self.log, self.bus, SystemClock(), feed=self.feed, checks=True)
        self._running = asyncio.create_task(self.tracker.run())
        await self.tracker.loop.wait_ready()

    async def stop(self) -> None:
        assert self._running is not None
        await stop_task(self._running)

    async def record(self, *payloads: EventData) -> int:
        return await recorded(self.log, *payloads)

    async def send(self, lane: subjects.Lane, *bodies: Model | bytes, first: int | None = None, spool: str = "spool") -> None:
        """Publish reports, and return when the last of them is committed."""
        sequence = self._sequences.get(lane, 0) if first is None else first - 1
        js = self.bus.jetstream()
        done = asyncio.Event()
        last = sequence + len(bodies)
        tokens = await load_report_tokens(self.pool)

        async def committed(message: Any) -> None:
            if Committed.from_json(message.data).sequence >= last:
                done.set()

        subscription = await self.bus.subscribe(subjects.committed(lane, "node"), cb=committed)
        await self.bus.flush()
        for body in bodies:
            sequence += 1
            headers = {HEADER_AGENT: "node", HEADER_SPOOL: spool, HEADER_SEQUENCE: str(sequence), HEADER_KIND: "x"}
            payload = body if isinstance(body, bytes) else body.to_json()
            if found := re.search(rb'"allocation_id": *"([^"]*)"', payload):
                headers[HEADER_TOKEN] = tokens.token("node", found[1].decode())
            await js.publish(subjects.ingress(lane, "node"), payload, headers=headers)
        self._sequences[lane] = max(sequence, self._sequences.get(lane, 0))
        await done.wait()
        await subscription.unsubscribe()

    async def decided(self) -> list[str]:
        return [event.type for event in await self.log.read(0, 5_000) if event.type in TrackerCore.emits]

    async def wait_decided(self, count: int) -> list[str]:
        async for _ in self.log.watch():
            if len(await self.decided()) >= count:
                break
        return await self.decided()


@pytest.fixture
async def world(database: Any, nats: Any, tmp_path: Path) -> AsyncIterator[World]:
    settings = Settings(database_url=database.url, shared_directory=str(tmp_path), nats_url=nats.url)
    log = await PostgresEventLog.connect(database.url)
    bus = await connect(settings)
    await ensure_streams(bus.jetstream(), settings)
    world = World(log, bus, settings)
    await world.start()
    yield world
    await world.stop()
    await bus.close()
    await log.close()


async def connect(settings: Settings) -> Client:
    return await nats.connect(settings.nats_url)


async def test_reports_are_recorded_once_through_restarts(world: World) -> None:
    await world.record(SUBMITTED, REQUESTED, granted(1))
    await world.send("tracker", validation(1), validation(2))
    await world.send("tracker", validation(1), validation(2), first=1)  # the agent did not hear that they are committed
    await world.stop()
    await world.start()
    await world.send("tracker", validation(3))
    await world.send("tracker", validation(2), validation(3), first=2)
    assert await world.decided() == ["ValidationReported"] * 3


async def test_a_report_that_overtakes_the_news_of_its_allocation_is_recorded(world: World) -> None:
    await world.record(SUBMITTED, REQUESTED)
    world.feed.gate.clear()
    await world.record(granted(1))
    sending = asyncio.create_task(world.send("tracker", validation(1)))
    await asyncio.sleep(0)
    world.feed.gate.set()
    await sending
    assert await world.decided() == ["ValidationReported"]


async def test_a_report_is_judged_by_the_log_and_not_by_what_was_read_of_it(world: World) -> None:
    """Fencing: the allocation was released, but the tracker has not read of it when the report comes."""
    position = await world.record(SUBMITTED, REQUESTED, granted(1))
    await world.tracker.loop.wait_position(position)
    world.feed.gate.clear()
    await world.record(released(1), granted(2))
    await world.send("tracker", validation(1, allocation=1))
    assert await world.decided() == ["ReportRefused"]
    world.feed.gate.set()
    await world.send("tracker", validation(1, allocation=2))
    assert await world.decided() == ["ReportRefused", "ValidationReported"]


async def test_a_trial_fails_finishes_and_replays(world: World) -> None:
    exited = WorkersExited(allocation_id="1-1-1", trial_id="1-1", outcome="failed", exit_code=1, error="boom")
    await world.record(SUBMITTED, REQUESTED, granted(1))
    await world.send("tracker", validation(1))
    await world.record(exited, released(1), granted(2))
    await world.wait_decided(2)
    await world.send("tracker", validation(1), validation(4, allocation=2))
    await world.record(STOPPED, released(2))
    decided = ["ValidationReported", "TrialFailed", "ReportRefused", "ValidationReported", "TrialFinished"]
    assert await world.wait_decided(5) == decided
    events = await world.log.read(0, 5_000)
    await world.tracker.loop.wait_position(events[-1].position)
    core = TrackerCore()
    assert core.dump(fold(core, events)) == core.dump(world.tracker.loop.state)
    verdict = verify_decisions(core, events)
    assert (verdict.divergences, verdict.decisions, verdict.from_commands) == ([], 2, 3)


@pytest.mark.parametrize("lane", ["tracker", "overflow", "metrics", "logs"])
async def test_what_cannot_be_read_is_parked_and_nothing_waits_behind_it(world: World, lane: subjects.Lane) -> None:
    await world.record(SUBMITTED, REQUESTED, granted(1))
    good: dict[str, Model] = {
        "tracker": validation(1),
        "overflow": validation(1),
        "metrics": MetricsReport(trial_id="1-1", allocation_id="1-1-1", points=(point(1, 1),)),
        "logs": LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=(line("x"),)),
    }
    strange = good[lane].to_json().replace(b'"1-1"', b'"../etc"')
    await world.send(lane, b"{", b'{"kind": "other"}', strange, good[lane])
    rows = await world.pool.fetch("SELECT consumer, reason FROM parked ORDER BY number")
    assert [row["consumer"] for row in rows] == [f"ingress-{lane}"] * 3
    assert "not an id" in rows[2]["reason"]
    facts = "events WHERE type = 'ValidationReported'"
    table = {"metrics": "trial_metric_chunks", "logs": "trial_logs"}.get(lane, facts)
    assert await world.pool.fetchval(f"SELECT count(*) FROM {table}") == 1


def point(batches: int, time_us: int, **metrics: float) -> MetricPoint:
    return MetricPoint(batches=batches, time_us=time_us, metrics=metrics or {"loss": 1.0})


def line(text: str, rank: int = 0) -> LogLine:
    return LogLine(time_us=1, rank=rank, stream="stdout", text=text)


async def test_the_newest_measurement_of_a_batch_stands(world: World) -> None:
    first = MetricsReport(
        trial_id="1-1", allocation_id="1-1-1", points=(point(1, 10), point(2, 20), point(2, 21, loss=float("nan")))
    )
    resumed = MetricsReport(trial_id="1-1", allocation_id="1-1-2", points=(point(2, 50, loss=3.0),))
    late = MetricsReport(trial_id="1-1", allocation_id="1-1-1", points=(point(2, 22, loss=9.0), point(3, 30)))
    await world.send("metrics", first, resumed, late)
    await world.send("metrics", first, first=1)
    expected = [(1, 10, 1, {"loss": 1.0}), (2, 50, 2, {"loss": 3.0}), (3, 30, 1, {"loss": 1.0})]
    assert await stored(world.pool) == expected
    for changed in ({"batches": 2**63}, {"batches": -(2**63)}, {"time_us": 2**63}):  # each parks its report alone
        await world.send("metrics", first.model_copy(update={"points": (point(9, 9).model_copy(update=changed),)}), late)
    assert await stored(world.pool) == expected
    assert await world.pool.fetchval("SELECT count(*) FROM parked") == 3


async def test_log_lines_are_stored_once_and_in_order(world: World) -> None:
    reports = [
        LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=tuple(line(f"{start + i}") for i in range(10)))
        for start in range(0, 50, 10)
    ]
    await world.send("logs", *reports)
    await world.pool.execute("DELETE FROM ingress_positions")  # as if it was killed between storing and noting
    await world.stop()
    await world.start()
    await world.send("logs", *reports, first=1)
    await world.send("logs", LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=(line("zero \0 byte"), line("y" * 40_000))))
    texts = [row["text"] for row in await world.pool.fetch("SELECT text FROM trial_logs ORDER BY line")]
    assert texts[:50] == [str(number) for number in range(50)]
    assert (texts[50], len(texts[51]), len(texts)) == ("zero \ufffd byte", 32_768, 52)


async def test_a_value_that_cannot_be_stored_parks_its_report_alone(world: World) -> None:
    good = LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=(line("good"),))
    await world.send("logs", good, LogsReport(trial_id="1-1", allocation_id="1-1-1", lines=(line("bad", rank=2**40),)), good)
    assert await world.pool.fetchval("SELECT count(*) FROM trial_logs") == 2
    assert await world.pool.fetchval("SELECT count(*) FROM parked") == 1


async def test_checkpoints_that_the_policy_drops_are_deleted_from_disk(world: World, tmp_path: Path) -> None:
    relay = asyncio.create_task(Relay(world.log, world.bus, world.settings).run())
    await world.record(SUBMITTED, REQUESTED, granted(1))
    for batches in (1, 2, 3):
        staged = tmp_path / f"staged-{batches}"
        staged.mkdir()
        (staged / "model").write_bytes(b"x%d" % batches)
        store = stores_of(world.settings.shared_directory, "").open_trial("shared", "1-1")
        checkpoints.save(store, Staged(f"1-1-1-{batches}", staged, None))
        saved = checkpoint(f"1-1-1-{batches}", batches)
        await world.send("tracker", saved, validation(batches, loss=1.0 / batches))
    assert (await world.decided()).count("CheckpointDeleted") == 2
    while checkpoints.list_manifests(store) != ["1-1-1-3"]:  # noqa: ASYNC110  nothing here can tell us
        await asyncio.sleep(0.05)
    await stop_task(relay)


def checkpoint(name: str, batches: int) -> CheckpointReport:
    return CheckpointReport(
        trial_id="1-1",
        allocation_id="1-1-1",
        checkpoint_id=name,
        batches=batches,
        length=batches,
        files=(),
        size_bytes=0,
    )


async def test_a_saved_checkpoint_is_in_the_record_before_its_validation(world: World) -> None:
    await world.record(SUBMITTED, REQUESTED, granted(1))
    await world.send("tracker", checkpoint("1-1-1-1", 1), validation(1))
    assert await world.decided() == ["CheckpointSaved", "ValidationReported"]


async def test_a_worker_cannot_say_where_its_checkpoint_is(world: World) -> None:
    await world.record(SUBMITTED, REQUESTED, granted(1))
    forged = json.dumps(json.loads(checkpoint("1-1-1-1", 1).to_json()) | {"location": "file:///etc"}).encode()
    of_another = checkpoint("2-1-1-1", 2)
    await world.send("tracker", forged, of_another, validation(1))
    [saved] = [event.data for event in await world.log.read(0) if event.type == "CheckpointSaved"]
    assert saved.location == "store://shared/1/1-1/manifests/1-1-1-1.json"
    assert "is not named for its allocation" in await world.pool.fetchval("SELECT reason FROM parked")
