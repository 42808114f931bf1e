"""The small world of the benchmark of reports: PostgreSQL, NATS, relay and tracker as processes of their own, and trials that are
on record and may report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
from nats.aio.client import Client
from service_process import start

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.migrations import migrate
from tenuto.kernel.report_tokens import ReportTokens, load_report_tokens
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import CheckpointFile
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    CheckpointReport,
    ValidationReport,
)
from tenuto.schemas.subjects import Lane

LANE: Lane = "tracker"
QUIET_TRIALS = 10
WHY = Reason(rule="bench")


def new_event(data: EventData) -> Event:
    return Event(
        id=uuid4(), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION, time_us=time.time_ns() // 1000,
        payload=data.to_json(), actor="bench/1", correlation_id="1",
    )  # fmt: skip


async def record_trials(log: PostgresEventLog, count: int) -> None:
    """An experiment whose trials all run: reports of others would be refused."""
    searcher = {"name": "random", "metric": "loss", "max_length": {"batches": 10**6}, "max_trials": count}
    config = ExperimentConfig.model_validate({"name": "bench", "entrypoint": "m:T", "searcher": searcher})
    submitted = ExperimentSubmitted(
        experiment_id=1, config=config, seed=1, context_hash="00", context_size_bytes=1, user="bench"
    )  # fmt: skip
    events: list[EventData] = [submitted]
    for number in range(1, count + 1):
        trial = f"1-{number}"
        events.append(
            TrialRequested(
                experiment_id=1, trial_id=trial, trial_number=number, hyperparameters={}, seed=1, target_length=10**6, reason=WHY
            )
        )
        slots = (AgentSlots(agent_id="bench", slot_ids=(number,)),)
        events.append(
            AllocationGranted(
                pool="default", allocation_id=f"{trial}-1", trial_id=trial, experiment_id=1, slots=slots, reason=WHY
            )
        )
    await log.append(Append([new_event(data) for data in events]))


def report_of(trial: int, number: int) -> Model:
    """Validations and checkpoints in turns, as of a trial that makes both at every batch."""
    batches, owner = number // 2 + 1, {"trial_id": f"1-{trial}", "allocation_id": f"1-{trial}-1"}
    if number % 2:
        return ValidationReport(**owner, batches=batches, length=batches, metrics={"loss": 1.0 / batches, "accuracy": 0.5})
    files = tuple(CheckpointFile(path=f"{name}.pt", size_bytes=1_000, sha256="0" * 64) for name in ("state", "model", "user"))
    name = f"1-{trial}-1-{batches}"
    return CheckpointReport(**owner, checkpoint_id=name, batches=batches, length=batches, files=files, size_bytes=3_000)


class World:
    def __init__(
        self,
        directory: Path,
        postgres: PostgresServer,
        server: NatsServer,
        log: PostgresEventLog,
        bus: Client,
        tokens: ReportTokens,
    ) -> None:
        self.directory, self.postgres, self.server, self.log, self.bus = directory, postgres, server, log, bus
        self.tokens = tokens
        self.js = bus.jetstream()

    @contextlib.contextmanager
    def tracker(self) -> Iterator[psutil.Process]:
        environment = {
            **os.environ,
            "TENUTO_DATABASE_URL": self.postgres.url,
            "TENUTO_NATS_URL": self.server.url,
            "TENUTO_SHARED_DIRECTORY": str(self.directory),
            "TENUTO_LOG_LEVEL": "WARNING",
        }
        processes = [start(["-m", module], environment) for module in ("tenuto.kernel.relay", "tenuto.services.tracker")]
        try:
            yield psutil.Process(processes[1].pid)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)

    async def publish(self, agent: str, trial: int, bodies: Iterator[tuple[int, bytes]]) -> None:
        subject = subjects.ingress(LANE, agent)
        headers = {HEADER_AGENT: agent, HEADER_SPOOL: agent, HEADER_KIND: "bench"}
        headers[HEADER_TOKEN] = self.tokens.token(agent, f"1-{trial}-1")
        last: tuple[int, bytes] | None = None
        for count, (sequence, body) in enumerate(bodies):
            if last is not None:
                await self.bus.publish(subject, last[1], headers=headers | {HEADER_SEQUENCE: str(last[0])})
            last = sequence, body
            if count % 2_000 == 0:
                await self.bus.flush(60)
        if last is not None:
            await self.publish_last(subject, last[1], headers | {HEADER_SEQUENCE: str(last[0])})

    async def publish_last(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """Returns when the stream has this report, and so all before it: a flush says only that the server has read them."""
        await self.js.publish(subject, body, timeout=60, headers=headers)

    async def messages(self) -> int:
        return int((await self.js.stream_info(subjects.INGRESS_STREAM)).state.messages)

    async def until_empty(self, messages: int = 0) -> None:
        while await self.messages() > messages:  # noqa: ASYNC110 - asks the server
            await asyncio.sleep(0.02)

    async def tracker_is_up(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                await self.bus.request(subjects.position(LANE, "nobody"), timeout=1)
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        postgres, server = PostgresServer(directory / "postgres"), NatsServer(directory / "nats")
        await postgres.start()
        await server.start()
        try:
            await migrate(postgres.owner_url)
            log = await PostgresEventLog.connect(postgres.url)
            settings = Settings(nats_url=server.url)
            bus = await bus_module.connect(settings, "bench")
            await bus_module.ensure_streams(bus.jetstream(), settings)
            await record_trials(log, QUIET_TRIALS + 1)
            yield World(directory, postgres, server, log, bus, await load_report_tokens(log.pool))
            await bus_module.close(bus)
            await log.close()
        finally:
            await server.stop()
            await postgres.stop()
