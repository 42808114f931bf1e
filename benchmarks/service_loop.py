"""The service loop end to end: JetStream in, decide, append, relay, JetStream out.

    python benchmarks/service_loop.py [--events 20000] [--rate 1000] [--seconds 10]

Real PostgreSQL (fsync on), NATS, relay and service, each a process of its own. The service decides one event per input. This
program appends inputs to the log and hears the answers on JetStream, over the same feed that services use.

throughput  all inputs appended at once, in batches of 500; until the last answer has arrived on JetStream
latency     inputs one at a time at a steady rate; from the instant at which an input is due until its answer arrives on JetStream
reference   in the same run: what the path is made of. Appending the same number of events in the same batches, and the median
            of one append of one event and of one acknowledged publish.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID, uuid4

from figures import figure, parse
from nats.aio.client import Client
from service_process import start

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import Append, EventLog
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import StreamFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.migrations import migrate
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.service import run_service
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.envelope import Event

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.tally_core import TallyCore, TallyState, priority_changed

BATCH = 500
EXPERIMENTS = 50
WARM_UP_EVENTS = 500


class Service:
    def __init__(self, loop: ServiceLoop[TallyState]) -> None:
        self._loop = loop

    def watched(self) -> MonitoredState:
        return self._loop.watched()

    async def run(self) -> None:
        await self._loop.run()


async def build(settings: Settings, log: EventLog, bus: Client, clock: Clock) -> Service:
    return Service(ServiceLoop(TallyCore(forgets_commands=True), log, StreamFeed(log, bus), clock, settings))


class Answers:
    """Hears the answers; remembers when each arrived, by the input that it answers."""

    def __init__(self, feed: StreamFeed) -> None:
        self._feed = feed
        self.arrived: dict[UUID, float] = {}
        self._moved = asyncio.Event()

    async def run(self, after: int) -> None:
        async for batch in self._feed.follow(after, BATCH):
            now = time.perf_counter()
            for event in batch:
                if event.type == "ExperimentCanceled" and event.causation_id is not None:
                    self.arrived[event.causation_id] = now
            self._moved.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(300):
            while len(self.arrived) < count:
                self._moved.clear()
                await self._moved.wait()


def new_inputs(count: int) -> list[Event]:
    return [priority_changed(uuid4(), 1 + number % EXPERIMENTS, 1 + number % 9) for number in range(count)]


async def append_all(log: PostgresEventLog, events: list[Event]) -> None:
    for first in range(0, len(events), BATCH):
        await log.append(Append(events[first : first + BATCH]))


async def throughput(log: PostgresEventLog, answers: Answers, count: int) -> float:
    """Seconds from the first append to the last answer."""
    before, events = len(answers.arrived), new_inputs(count)
    begun = time.perf_counter()
    await append_all(log, events)
    await answers.until(before + count)
    return time.perf_counter() - begun


async def latencies(log: PostgresEventLog, answers: Answers, rate: int, seconds: float) -> list[float]:
    """Seconds from the instant at which each input is due until its answer arrives. Inputs that are due during a commit share
    the next one, as in a service."""
    events = new_inputs(int(rate * seconds))
    before, at = len(answers.arrived), 0
    begun = time.perf_counter()
    while at < len(events):
        due = min(len(events), int((time.perf_counter() - begun) * rate) + 1)
        if due == at:
            await asyncio.sleep(max(begun + at / rate - time.perf_counter(), 0))
            continue
        await append_all(log, events[at:due])
        at = due
    await answers.until(before + len(events))
    return sorted(answers.arrived[event.id] - (begun + number / rate) for number, event in enumerate(events))


async def median_seconds(rounds: int, work: Callable[[], Awaitable[object]]) -> float:
    durations = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        durations.append(time.perf_counter() - begun)
    return statistics.median(durations)


async def measure(postgres: PostgresServer, server: NatsServer, arguments: argparse.Namespace) -> dict[str, object]:
    log = await PostgresEventLog.connect(postgres.url)
    bus = await bus_module.connect(Settings(nats_url=server.url), "bench")
    answers = Answers(StreamFeed(log, bus))
    hearing = asyncio.create_task(answers.run(0))
    await throughput(log, answers, arguments.warm_up_events)
    rounds = [await throughput(log, answers, arguments.events) for _ in range(arguments.rounds)]
    slow = await latencies(log, answers, arguments.rate, arguments.seconds)
    hearing.cancel()
    begun = time.perf_counter()
    await append_all(log, new_inputs(arguments.events))
    append_seconds = time.perf_counter() - begun
    single = await median_seconds(arguments.references, lambda: log.append(Append(new_inputs(1))))
    js = bus.jetstream()
    publish = await median_seconds(arguments.references, lambda: js.publish(subjects.ingress("launcher", "reference"), b"{}"))
    await bus_module.close(bus)
    await log.close()
    p50, p99 = slow[len(slow) // 2], slow[int(len(slow) * 0.99)]
    best, appended = arguments.events / min(rounds), arguments.events / append_seconds
    figure("inputs answered", best, "/s", beside="append to the log", of=appended, bar="at least 5,000/s")
    made_of = 1e3 * (2 * single + 2 * publish)
    for name, seconds, bar in (("p50", p50, ""), ("p99", p99, "at most 100 ms")):
        figure(f"input to answer, {name}", seconds * 1e3, "ms", beside="two appends and two publishes", of=made_of, bar=bar)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "inputs": arguments.events,
        "inputs_per_second": round(arguments.events / min(rounds)),
        "inputs_per_second_by_round": [round(arguments.events / seconds) for seconds in rounds],
        "log_append_per_second": round(arguments.events / append_seconds),
        "ratio_to_log_append": round(append_seconds / min(rounds), 2),
        "latency_rate": arguments.rate,
        "latency_p50_ms": round(p50 * 1e3, 1),
        "latency_p99_ms": round(p99 * 1e3, 1),
        "latency_max_ms": round(slow[-1] * 1e3, 1),
        "single_append_ms": round(single * 1e3, 2),
        "single_publish_ms": round(publish * 1e3, 2),
        "ratio_p50_to_two_appends_and_two_publishes": round(p50 / (2 * single + 2 * publish), 1),
    }


async def servers(directory: Path) -> AsyncIterator[tuple[PostgresServer, NatsServer]]:
    postgres, server = PostgresServer(directory / "postgres"), NatsServer(directory / "nats")
    await postgres.start()
    await server.start()
    try:
        await migrate(postgres.owner_url)
        yield postgres, server
    finally:
        await server.stop()
        await postgres.stop()


async def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        async for postgres, server in servers(directory):
            environment = {
                **os.environ,
                "TENUTO_DATABASE_URL": postgres.url,
                "TENUTO_NATS_URL": server.url,
                "TENUTO_LOG_LEVEL": "WARNING",
            }
            processes = [start(command, environment) for command in (["-m", "tenuto.kernel.relay"], [__file__, "--service"])]
            try:
                print(json.dumps(await measure(postgres, server, arguments), indent=1))
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.wait(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3, help="of throughput; the best one counts")
    parser.add_argument("--rate", type=int, default=1_000, help="inputs per second while latency is measured")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--service", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--warm-up-events", type=int, default=WARM_UP_EVENTS)
    parser.add_argument("--references", type=int, default=200, help="single appends and publishes")
    given = parse(parser, events=100, rounds=1, rate=100, seconds=0.3, warm_up_events=20, references=10)
    if given.service:
        run_service("tally", build)
    else:
        asyncio.run(main(given))
