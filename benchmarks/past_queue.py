"""The queue at any position of a log of 100,000 events: `python benchmarks/past_queue.py`.

A simulated cluster's own decisions are the log, in a real PostgreSQL: experiments of 20 users on 64 slots, with more demand than
slots now and then. The real process of the scheduler answers. The first question reads the whole log, in several answers that say
how far it is; then come random positions, each only once, and steps forward as the page plays them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from uuid import UUID

import psutil
from figures import figure, parse

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.kernel.settings import Settings
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.queue import PastAnswer, PastQuestion, QueueQuestion
from tenuto.services.scheduler.adapters.past_queue import PastQueues
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster
from tenuto.services.scheduler.simulation.traces import generated, script_of

BATCH = 5_000
STEPS_MAX = 250


def simulated(events: int, policy: str) -> list[Event]:
    told: list[Event] = []
    inputs = 0

    def observer(data: EventData) -> None:
        nonlocal inputs
        own = data.OWNER == "scheduler"
        inputs = inputs if own else len(told) + 1
        told.append(
            Event(
                id=UUID(int=len(told) + 1), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
                time_us=cluster.now_us, payload=data.to_json(), actor=f"{data.OWNER}/1", seen_position=inputs if own else 0,
            )
        )  # fmt: skip

    jobs = generated(events // 18, 64, 1, arrivals="bursty", load=1.0)
    cluster = SimulatedCluster(script_of(jobs, 8, 8), policy, Costs(), observer=observer)
    cluster.run()
    return told[:events]


async def filled(directory: Path, events: list[Event]) -> PostgresServer:
    directory.chmod(0o711)
    server = PostgresServer(directory / "postgres")
    await server.start()
    await migrate(server.owner_url)
    log = await PostgresEventLog.connect(server.url)
    for start in range(0, len(events), BATCH):
        await log.append(Append(events=events[start : start + BATCH]))
    await log.close()
    return server


async def timed(queues: PastQueues, position: int, *, agents: bool) -> tuple[float, PastAnswer, int]:
    question = PastQuestion(position=position, queue=QueueQuestion(rows_max=200 if agents else 1_000), agents=agents)
    begin = time.perf_counter()
    data = await queues.answer(question.to_json())
    return time.perf_counter() - begin, PastAnswer.from_json(data), len(data)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--policy", default="priority")
    given = parse(parser, events=400, questions=5)
    events = simulated(given.events, given.policy)
    print(f"{len(events):,} events, {len({event.type for event in events})} types, policy {given.policy}")
    with tempfile.TemporaryDirectory() as directory:
        server = await filled(Path(directory), events)
        queues = PastQueues(Settings(database_url=server.url))
        try:
            await measure(queues, len(events), given.questions)
        finally:
            await queues.stop()
            await server.stop()


async def measure(queues: PastQueues, head: int, questions: int) -> None:
    begin, asked = time.perf_counter(), 0
    while True:
        _, answer, _ = await timed(queues, head, agents=False)
        asked += 1
        if not answer.code:
            break
    print(f"first answer at the log's end: {time.perf_counter() - begin:.1f} s, {asked} questions")
    chance, steps = random.Random(1), min(STEPS_MAX, questions)
    for name, positions, agents in (
        ("random positions, queue", chance.sample(range(1, head + 1), questions), False),
        ("random positions, cluster", chance.sample(range(1, head + 1), questions), True),
        (f"forward, {steps} steps", [head * step // steps for step in range(1, steps + 1)], False),
    ):
        found = [await timed(queues, position, agents=agents) for position in positions]
        taken = sorted(seconds for seconds, _, _ in found)
        rows = max(sum(len(pool.rows) for pool in answer.queue.pools) for _, answer, _ in found)
        assert not any(answer.code for _, answer, _ in found)
        figure(f"{name}, median", taken[len(taken) // 2] * 1e3, "ms")
        print(
            f"{name:28} median {taken[len(taken) // 2] * 1e3:6.0f} ms  p99 {taken[-1 - len(taken) // 100] * 1e3:6.0f} ms  "
            f"longest {taken[-1] * 1e3:6.0f} ms  up to {rows} rows, {max(size for *_, size in found) / 1e3:.0f} kB"
        )
    [child] = [process for process in psutil.Process().children() if "past" in " ".join(process.cmdline())]
    print(f"memory of the process: {child.memory_info().rss / 1e6:.0f} MB")


if __name__ == "__main__":
    asyncio.run(main())
