"""The whole road in real processes under seeded faults: reports and inputs in, decisions out, each exactly once.

Two relays, a service that kills itself between any two steps, and a second instance of it that fences the first; NATS is killed
and loses its disk. The checkers look only at the log and the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import nats.errors
import pytest
from nats.js.errors import Error as JetStreamError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel.bus import Client
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.replay import verify_decisions
from tenuto.kernel.service import EXIT_FENCED
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.ids import name_id
from tenuto.schemas.reports import HEADER_AGENT, HEADER_KIND, HEADER_SEQUENCE, HEADER_SPOOL, Committed
from tests.conftest import Database
from tests.support.seeds import SEEDS
from tests.support.tally_core import TallyCore, priority_changed, weight_changed
from tests.support.waiting import SECONDS_MAX, until_async

SERVICE = Path(__file__).parent.parent / "support" / "tally_service.py"
AGENT, SPOOL = "node-1", "spool-1"
INPUTS, REPORTS = 1_000, 200
DEATHS_MIN = 3
"""Deaths of the service until which inputs go on being produced, however many it takes."""
HANG_SECONDS = 420
"""Only a hang takes as long: each death costs the start of a Python process, which a loaded machine draws out."""
BUS_LOSSES = (nats.errors.Error, JetStreamError, TimeoutError, OSError)


class Supervisor:
    """Starts a process again whenever it ends, until it is stopped; then ends it for certain."""

    def __init__(self, *command: str, environment: dict[str, str]) -> None:
        """Each process finds in TALLY_LIFE how many before it have ended."""
        self._command, self._environment = command, environment
        self.codes: list[int] = []
        """Exit codes of those that have ended."""

    async def run(self) -> None:
        while True:
            environment = {**self._environment, "TALLY_LIFE": str(len(self.codes))}
            process = await asyncio.create_subprocess_exec(
                *self._command, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            try:
                self.codes.append(await process.wait())
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


class Agent:
    """Sends numbered reports until it is told that all are committed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: asyncio.Queue[Committed] = asyncio.Queue()

    async def run(self) -> None:
        await self._client.subscribe(subjects.committed("tracker", AGENT), cb=self._hear)
        committed = sent = 0
        while committed < REPORTS:
            while not self._told.empty():
                news = self._told.get_nowait()
                committed = max(committed, news.sequence)
                sent = committed if news.resend else max(sent, committed)
            try:
                if sent < REPORTS and sent - committed < 40:
                    await self._send(sent + 1)
                    sent += 1
                else:
                    async with asyncio.timeout(0.5):
                        self._told.put_nowait(await self._told.get())
            except BUS_LOSSES:
                committed = sent = await self._ask(committed)

    async def _hear(self, message: Any) -> None:
        self._told.put_nowait(Committed.from_json(message.data))

    async def _send(self, sequence: int) -> None:
        headers = {HEADER_AGENT: AGENT, HEADER_SPOOL: SPOOL, HEADER_SEQUENCE: str(sequence), HEADER_KIND: "add"}
        body = json.dumps({"experiment_id": sequence % 3, "amount": 1}).encode()
        await self._client.jetstream(timeout=1).publish(subjects.ingress("tracker", AGENT), body, headers=headers)

    async def _ask(self, committed: int) -> int:
        try:
            reply = await self._client.request(subjects.position("tracker", AGENT), SPOOL.encode(), timeout=0.5)
        except BUS_LOSSES:
            return committed
        return max(committed, Committed.from_json(reply.data).sequence)


async def produce(log: PostgresEventLog, chance: random.Random, enough: Callable[[], bool]) -> None:
    """INPUTS inputs, and further ones until what is to happen meanwhile has happened."""
    made = 0
    while made < INPUTS or not enough():
        count = chance.randint(1, 30)
        events = [
            (priority_changed if chance.random() < 0.7 else weight_changed)(UUID(int=made + n), n % 3, 1)
            for n in range(1, count + 1)
        ]
        await log.append(Append(events))
        made += count
        await asyncio.sleep(chance.random() * 0.05)


async def read_all(log: PostgresEventLog) -> list[Any]:
    events: list[Any] = []
    while page := await log.read(len(events), 5_000):
        events += page
    return events


async def settled(log: PostgresEventLog) -> None:
    """Every input is answered and every checkpoint has reached the end."""

    async def lag() -> int:
        return await log.head() - (await log.checkpoint("tally")).position

    await until_async(lag, lambda left: left <= 0)


async def stream_ids(client: Client, upto: int) -> list[tuple[int, str]]:
    js = client.jetstream(timeout=60)
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            with contextlib.suppress(*BUS_LOSSES):
                state = (await js.stream_info(subjects.LOG_STREAM)).state
                if state.last_seq >= upto:
                    break
            await asyncio.sleep(0.1)
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await js.get_msg(subjects.LOG_STREAM, seq=sequence)
        found.append((sequence, (message.headers or {})["Nats-Msg-Id"]))
    return found


def check(events: list[Any]) -> None:
    answers = Counter(event.causation_id for event in events if event.type == "ExperimentCanceled")
    assert set(answers.values()) == {1}, "nothing is answered twice"
    inputs = {event.id for event in events if event.type == "ExperimentPriorityChanged"}
    reports = {name_id(AGENT, SPOOL, "tracker", str(sequence)) for sequence in range(1, REPORTS + 1)}
    assert set(answers) == inputs | reports, "nothing is lost"
    verdict = verify_decisions(TallyCore(), events)
    assert verdict.ok, verdict.divergences[:3]
    assert (verdict.decisions, verdict.from_commands, verdict.undecided) == (len(inputs), REPORTS, 0)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(2 * HANG_SECONDS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_or_doubled_whatever_is_killed(database: Database, nats: NatsServer, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    environment = {
        **os.environ,
        "TENUTO_DATABASE_URL": database.url,
        "TENUTO_NATS_URL": nats.url,
        "TENUTO_SNAPSHOT_EVENTS": "100",
        "TENUTO_BATCH_EVENTS_MAX": "50",
        "TALLY_SEED": str(seed),
        "TALLY_DEATH": "0.1",
    }
    relays = [Supervisor(sys.executable, "-m", "tenuto.kernel.relay", environment=environment) for _ in range(2)]
    service = Supervisor(sys.executable, str(SERVICE), environment=environment)
    log = await PostgresEventLog.connect(database.url)
    client = await bus_module.connect(Settings(nats_url=nats.url), "test")
    tasks = [asyncio.create_task(process.run()) for process in (*relays, service)]
    try:
        producing = asyncio.create_task(produce(log, chance, lambda: service.codes.count(-signal.SIGKILL) >= DEATHS_MIN))
        reporting = asyncio.create_task(Agent(client).run())
        tasks += [producing, reporting]
        for fault in range(5):
            await asyncio.sleep(0.5 + chance.random())
            await nats.kill()
            if fault % 2:
                await nats.wipe()
            await nats.start()
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(producing, reporting)
        await settled(log)
        events = await read_all(log)
        there = await stream_ids(client, len(events))
    finally:
        for task in tasks:
            await stop_task(task)
        await bus_module.close(client)
        await log.close()
    print(f"the service ended with {service.codes}")
    check(events)
    assert there == [(event.position, str(event.id)) for event in events][there[0][0] - 1 :]


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_second_instance_changes_nothing(database: Database, nats: NatsServer) -> None:
    """Both run all the time: each start fences the other, which then starts again."""
    environment = {
        **os.environ,
        "TENUTO_DATABASE_URL": database.url,
        "TENUTO_NATS_URL": nats.url,
        "TALLY_SEED": "1",
        "TALLY_DEATH": "0",
    }
    processes = [Supervisor(sys.executable, str(SERVICE), environment=environment) for _ in range(2)]
    processes.append(Supervisor(sys.executable, "-m", "tenuto.kernel.relay", environment=environment))
    log = await PostgresEventLog.connect(database.url)
    client = await bus_module.connect(Settings(nats_url=nats.url), "test")
    tasks = [asyncio.create_task(process.run()) for process in processes]
    try:
        # One notices that it is fenced when it has something to decide after another's start.
        fenced = lambda: any(EXIT_FENCED in process.codes for process in processes[:2])  # noqa: E731
        producing = asyncio.create_task(produce(log, random.Random(3), fenced))
        reporting = asyncio.create_task(Agent(client).run())
        tasks += [producing, reporting]
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.gather(producing, reporting)
        await settled(log)
        events = await read_all(log)
    finally:
        for task in tasks:
            await stop_task(task)
        await bus_module.close(client)
        await log.close()
    check(events)
