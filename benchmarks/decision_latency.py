"""Decision latency: from a worker's validation published on the bus to the searcher's next event committed.

    python benchmarks/decision_latency.py [--decisions 300] [--rounds 200]

Real PostgreSQL, NATS, relay, tracker and searcher, each a process of its own, at rest: one validation at a time. The path is
ingress -> tracker decides, commits -> relay publishes -> searcher decides, commits -> this program is notified and reads.

The reference, in the same run: one acknowledged publish to JetStream and one append to the log. The path is made of two of
each; the ratio says how much all else costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import nats
from figures import figure, parse
from service_process import start

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.kernel.report_tokens import ReportTokens, load_report_tokens
from tenuto.schemas import reports, subjects
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import TrialProgressed

AGENT, SPOOL = "bench", "spool"
REST_SECONDS = 0.03
"""Between decisions: the system is idle again."""
DECISION_SECONDS_MAX = 60.0
"""A refused report is never decided on. The tracker logs why, and this ends with an error instead of a hang."""
PROCESSES = ("tenuto.kernel.relay", "tenuto.services.tracker", "tenuto.services.searcher")


def new_event(data: EventData, actor: str) -> Event:
    return Event(
        id=uuid4(), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION, time_us=time.time_ns() // 1000,
        payload=data.to_json(), actor=actor, correlation_id="1",
    )  # fmt: skip


def submission(decisions: int) -> ExperimentSubmitted:
    searcher = {
        "name": "random", "metric": "loss", "max_length": {"batches": 10}, "max_trials": decisions, "max_concurrent_trials": 1,
    }  # fmt: skip
    config = ExperimentConfig.model_validate({"name": "bench", "entrypoint": "m:T", "searcher": searcher})
    return ExperimentSubmitted(experiment_id=1, config=config, seed=1, context_hash="00", context_size_bytes=1, user="bench")


class Watcher:
    """Reads the log as it grows; `until` waits for an event."""

    def __init__(self, log: PostgresEventLog) -> None:
        self._log, self._position = log, 0
        self._watch = log.watch()

    async def until(self, types: set[str]) -> tuple[Event, float]:
        """The next event of one of the types, and when its commit was seen."""
        while True:
            for event in await self._log.read(self._position):
                self._position = event.position
                if event.type in types:
                    return event, time.perf_counter()
            await anext(self._watch)


async def measure(log: PostgresEventLog, bus: nats.NATS, tokens: ReportTokens, decisions: int) -> list[float]:
    js = bus.jetstream()
    watcher = Watcher(log)
    await log.append(Append([new_event(submission(decisions + 1), "user:bench")]))
    latencies = []
    for sequence in range(1, decisions + 1):
        event, _ = await watcher.until({"TrialRequested"})
        trial = event.data
        assert isinstance(trial, TrialRequested)
        allocation = f"{trial.trial_id}-1"
        granted = AllocationGranted(
            pool="default", allocation_id=allocation, trial_id=trial.trial_id, experiment_id=1,
            slots=(AgentSlots(agent_id=AGENT, slot_ids=(0,)),), reason=Reason(rule="bench"),
        )  # fmt: skip
        await log.append(Append([new_event(granted, "scheduler/1")]))
        await watcher.until({"AllocationGranted"})
        await asyncio.sleep(REST_SECONDS)
        report = reports.ValidationReport(
            trial_id=trial.trial_id, allocation_id=allocation, batches=10, length=10, metrics={"loss": 1.0 / sequence}
        )
        headers = {
            reports.HEADER_AGENT: AGENT, reports.HEADER_SPOOL: SPOOL,
            reports.HEADER_SEQUENCE: str(sequence), reports.HEADER_KIND: report.kind,
            reports.HEADER_TOKEN: tokens.token(AGENT, allocation),
        }  # fmt: skip
        begun = time.perf_counter()
        await js.publish(subjects.ingress("tracker", AGENT), report.to_json(), headers=headers)
        async with asyncio.timeout(DECISION_SECONDS_MAX):
            _, ended = await watcher.until({"TrialStopped"})
        latencies.append(ended - begun)
    return latencies


async def reference(log: PostgresEventLog, bus: nats.NATS, rounds: int) -> dict[str, float]:
    """Median seconds of one JetStream publish (acknowledged) and of one append of one event."""
    js = bus.jetstream()
    publishes, appends = [], []
    for number in range(rounds):
        begun = time.perf_counter()
        await js.publish(subjects.ingress("launcher", "reference"), b"{}")  # nobody reads this lane here
        publishes.append(time.perf_counter() - begun)
        data = TrialProgressed(trial_id="0-0", allocation_id="0-0-0", batches=number, length=number)
        begun = time.perf_counter()
        await log.append(Append([new_event(data, "tracker/1")]))
        appends.append(time.perf_counter() - begun)
        await asyncio.sleep(0.005)
    return {"publish": statistics.median(publishes), "append": statistics.median(appends)}


async def main(decisions: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres, server = PostgresServer(directory / "postgres"), NatsServer(directory / "nats")
        await postgres.start()
        await server.start()
        await migrate(postgres.owner_url)
        environment = {
            **os.environ, "TENUTO_DATABASE_URL": postgres.url, "TENUTO_NATS_URL": server.url,
            "TENUTO_SHARED_DIRECTORY": name, "TENUTO_LOG_LEVEL": "WARNING",
        }  # fmt: skip
        processes = [start(["-m", module], environment) for module in PROCESSES]
        try:
            log = await PostgresEventLog.connect(postgres.url)
            bus = await nats.connect(server.url)
            latencies = sorted(await measure(log, bus, await load_report_tokens(log.pool), decisions))
            base = await reference(log, bus, rounds)
            await bus.close()
            await log.close()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(10)
            await server.stop()
            await postgres.stop()
    p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    made_of = 2 * base["publish"] + 2 * base["append"]
    result = {
        "decisions": decisions,
        "p50_ms": round(p50 * 1e3, 2),
        "p99_ms": round(p99 * 1e3, 2),
        "max_ms": round(latencies[-1] * 1e3, 2),
        "publish_ms": round(base["publish"] * 1e3, 2),
        "append_ms": round(base["append"] * 1e3, 2),
        "p50_over_two_publishes_and_two_appends": round(p50 / made_of, 2),
    }
    print(json.dumps(result, indent=1))
    for name, seconds, bar in (("p50", p50, "at most 25 ms"), ("p99", p99, "at most 100 ms")):
        figure(f"decision, {name}", seconds * 1e3, "ms", beside="two publishes and two appends", of=made_of * 1e3, bar=bar)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=200, help="of the reference")
    given = parse(parser, decisions=3, rounds=10)
    asyncio.run(main(given.decisions, given.rounds))
