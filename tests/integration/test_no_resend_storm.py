"""The real road of reports, from the agent's disk over NATS to the receiver, where the receiver is slow or the stream is full of
what an earlier version sent again and again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest
from nats.errors import NoRespondersError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.received_reports import Report
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.bus import Backlog
from tenuto.schemas.reports import HEADER_AGENT, HEADER_KIND, HEADER_SEQUENCE, HEADER_SPOOL, REPORT_BYTES_MAX
from tenuto.schemas.subjects import Lane
from tenuto.services.launcher.adapters.backlog import BACKLOG_REPORTS_MAX, Backlogs
from tenuto.workers.agent import lane_decisions
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.database import Disk, open_database
from tenuto.workers.agent.publishing import LanePublisher
from tenuto.workers.agent.rpc import TOO_LARGE_BYTES_KEPT, _new_report
from tenuto.workers.agent.spool import FACT_LANES, NewReport, Spool
from tests.conftest import Database
from tests.support.waiting import SECONDS_MAX

AGENT = "node-1"
LANE: Lane = "tracker"


class Slow:
    """A receiver that takes some time for each commit, and may be told to stand still."""

    def __init__(self, commit_seconds: float) -> None:
        self.commit_seconds = commit_seconds
        self.bodies: list[bytes] = []
        self._moved = Changed()
        self.goes = asyncio.Event()
        self.goes.set()

    async def __call__(self, reports: Sequence[Report]) -> None:
        await self.goes.wait()
        await asyncio.sleep(self.commit_seconds)
        self.bodies.extend(report.body for report in reports)
        self._moved.notify()

    async def until(self, count: int) -> None:
        while len(self.bodies) < count:
            await self._moved.next().wait()


class Road:
    def __init__(self, settings: Settings, bus: bus_module.Client, pool: asyncpg.Pool, path: Path) -> None:
        self.settings, self.bus, self.pool = settings, bus, pool
        self.disk, names = Disk(), itertools.count(1)
        self.spool = Spool(open_database(path), "spool-0")
        self.spooled, self.committed = Changed(), Changed()
        self.new_id = lambda: f"spool-{next(names)}"
        self.made = 0

    async def append(self, count: int, allocation_id: str = "1-1-1") -> None:
        first, self.made = self.made, self.made + count
        new = [NewReport(LANE, "test", allocation_id, f"{allocation_id} {first + index}".encode()) for index in range(count)]
        await self.disk(self.spool.append, *new)
        self.spooled.notify()

    async def until_committed(self, allocation_id: str = "1-1-1") -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                changed = self.committed.next()
                if await self.disk(self.spool.waiting, LANE, allocation_id) == 0:
                    return
                await changed.wait()

    @contextlib.asynccontextmanager
    async def receiving(self, receiver: Slow) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            lanes = [Ingress(lane, self.settings, self.bus, self.pool, receiver) for lane in FACT_LANES]
            tasks = [group.create_task(ingress.run()) for ingress in lanes]
            yield
            await asyncio.gather(*map(stop_task, tasks))

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            publishers = [
                LanePublisher(lane, AGENT, self.bus, self.spool, self.disk, self.spooled, self.committed, self.new_id)
                for lane in FACT_LANES
            ]
            tasks = [group.create_task(publisher.run()) for publisher in publishers]
            yield
            await asyncio.gather(*map(stop_task, tasks))

    async def stored(self) -> int:
        """Messages that the stream has taken since it was made."""
        info = await self.bus.jetstream().stream_info(subjects.INGRESS_STREAM)
        return int(info.state.last_seq)

    async def repeat(self, sequence: int, times: int) -> None:
        """As an agent of an earlier version did: without an id by which the stream could tell."""
        headers = {HEADER_AGENT: AGENT, HEADER_SPOOL: "spool-0", HEADER_SEQUENCE: str(sequence), HEADER_KIND: "test"}
        subject, body = subjects.ingress(LANE, AGENT), b"x" * 300
        for number in range(times):
            await self.bus.publish(subject, body, headers=headers)
            if number % 5_000 == 0:
                await self.bus.flush(timeout=60)
        await self.bus.flush(timeout=60)


@pytest.fixture
async def road(nats: NatsServer, database: Database, tmp_path: Path) -> AsyncIterator[Road]:
    settings = Settings(nats_url=nats.url)
    bus = await bus_module.connect(settings, "test")
    pool = await asyncpg.create_pool(database.url, min_size=1, max_size=3)
    await bus_module.ensure_streams(bus.jetstream(), settings)
    made = Road(settings, bus, pool, tmp_path / "agent.sqlite")
    yield made
    made.disk.close()
    await bus_module.close(bus)
    await pool.close()


async def test_a_slow_receiver_and_words_that_come_twice_make_no_storm(road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit takes long, repetitions are in between, and for seconds there is none at all."""
    monkeypatch.setattr(lane_decisions, "ASK_SECONDS_MIN", 0.05)  # so that it asks many times
    receiver = Slow(0.2)
    async with road.receiving(receiver), road.sending():
        await road.append(800)
        await asyncio.sleep(0.3)  # some of them are out
        await road.repeat(1, 20)
        receiver.goes.clear()
        await asyncio.sleep(6.0)  # beyond every timeout there is
        receiver.goes.set()
        await road.until_committed()
    assert receiver.bodies == [f"1-1-1 {number}".encode() for number in range(800)]
    assert await road.stored() == 800 + 20


async def test_trials_take_turns(road: Road) -> None:
    """One has ten thousand reports on the agent's disk when another makes its first one."""
    receiver = Slow(0.01)
    await road.append(10_000)
    async with road.receiving(receiver), road.sending():
        await receiver.until(200)
        await road.append(3, "1-2-1")
        await road.until_committed("1-2-1")
        before = len(receiver.bodies)
        assert before < 10_000 - 5_000, "it waited for most of the others"
        await road.until_committed()
    ours = [body for body in receiver.bodies if body.startswith(b"1-2-1")]
    assert ours == sorted(ours)
    assert len(ours) == 3
    assert [body for body in receiver.bodies if body.startswith(b"1-1-1")] == [f"1-1-1 {n}".encode() for n in range(10_000)]


async def test_the_order_of_each_trial_stays_where_both_sides_end_and_begin_again(road: Road) -> None:
    """A noisy trial goes from one lane to the other and back, while receiver and publisher are stopped in the middle."""
    receiver = Slow(0.005)
    made: Counter[str] = Counter()
    for burst in (300, 5, 40, 1, 200):
        async with road.receiving(receiver), road.sending():
            for trial, count in (("1-1-1", burst), ("1-2-1", 3)):
                await road.append(count, trial)
                made[trial] += count
            await receiver.until(len(receiver.bodies) + 4)
    async with road.receiving(receiver), road.sending():
        for trial in made:
            await road.until_committed(trial)
    for trial, count in made.items():
        # A commit that was not noted in time is repeated; the tracker knows a report by its id.
        numbers = [int(body.split()[1]) for body in dict.fromkeys(receiver.bodies) if body.startswith(trial.encode())]
        assert (numbers == sorted(numbers), len(numbers)) == (True, count)


@pytest.mark.slow
async def test_a_stream_full_of_repetitions_is_left_at_once(road: Road) -> None:
    """An earlier version left repetitions of two reports, which are still in the agent's spool. (benchmarks/reports.py makes
    300,000.)"""
    await road.append(2)
    await road.repeat(1, 20_000)
    await road.repeat(2, 20_000)
    receiver = Slow(0.0)
    async with road.receiving(receiver), road.sending():
        await road.append(1, "1-2-1")
        await road.until_committed("1-2-1")
        await road.until_committed()
        info = await road.bus.jetstream().stream_info(subjects.INGRESS_STREAM)
        assert info.state.messages < 5_000
    assert sorted(receiver.bodies, key=lambda body: body[:5] != b"1-1-1")[2:] == [b"1-2-1 2"]


@pytest.mark.slow
async def test_repetitions_of_an_agent_that_is_gone_are_dropped_in_bulk(road: Road) -> None:
    await road.repeat(1, 10_000)
    receiver = Slow(0.01)
    async with road.receiving(receiver):
        async with asyncio.timeout(SECONDS_MAX):
            while (await road.bus.jetstream().stream_info(subjects.INGRESS_STREAM)).state.messages:
                await receiver.goes.wait()
    assert receiver.bodies == [b"x" * 300]


async def test_what_waits_is_told_by_agent_and_lane(road: Road, caplog: pytest.LogCaptureFixture) -> None:
    backlogs = Backlogs(road.bus, SystemClock())
    task = asyncio.create_task(backlogs.run())
    try:
        while True:
            with contextlib.suppress(NoRespondersError):
                await road.bus.request(subjects.BACKLOG, timeout=30)
                break
        await road.repeat(1, 7)
        backlogs.hear(AGENT, {LANE: BACKLOG_REPORTS_MAX + 1})
        backlogs.hear("node.2", {"metrics": 3})
        answer = Backlog.from_json((await road.bus.request(subjects.BACKLOG, timeout=30)).data)
        assert [(item.agent_id, item.lane, item.waiting, item.on_bus) for item in answer.lanes] == [
            (AGENT, LANE, BACKLOG_REPORTS_MAX + 1, 7),
            ("node.2", "metrics", 3, 0),
        ]
        caplog.set_level(logging.INFO, "tenuto.services.launcher.adapters.backlog")
        backlogs.warn((await backlogs.look()).lanes)
        backlogs.warn((await backlogs.look()).lanes)
        assert [record.levelname for record in caplog.records] == ["WARNING"], "the same one is not said again at once"
        assert "5000 reports of agent node-1, lane tracker" in caplog.text
        backlogs.hear(AGENT, {})
        backlogs.warn((await backlogs.look()).lanes)
        assert "are in the record again" in caplog.text
    finally:
        await stop_task(task)


async def test_the_largest_report_passes(road: Road) -> None:
    """A checkpoint of very many files; a larger one is cut at the agent's door, as it could never leave the spool."""
    receiver = Slow(0.0)
    async with road.receiving(receiver), road.sending():
        await road.disk(road.spool.append, NewReport(LANE, "test", "1-1-1", b"x" * REPORT_BYTES_MAX))
        road.spooled.notify()
        await road.until_committed()
    assert [len(body) for body in receiver.bodies] == [REPORT_BYTES_MAX]
    cut = _new_report("1-1-1", LANE, b"x" * (REPORT_BYTES_MAX + 1), "")
    assert isinstance(cut, NewReport)
    assert (cut.kind, len(cut.body)) == ("too_large", TOO_LARGE_BYTES_KEPT)
