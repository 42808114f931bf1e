"""A thief of one agent's credentials, on a real cluster where another agent trains another user's trial: he can read only that
agent's data, and nothing that he forges is recorded.

Long, because one cluster serves all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from tenuto.kernel.bus_users import BusUsers
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Heartbeat, HeartbeatReply
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_KIND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    HEADER_TOKEN,
    CheckpointReport,
    LogLine,
    LogsReport,
    MetricPoint,
    MetricsReport,
    ValidationReport,
    WorkersExitedReport,
)
from tenuto.schemas.subjects import Lane
from tests.security.answers import intrusions, log_stream, replies
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import LiveCluster
from tests.support.waiting import SECONDS_MAX, until_on_loop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODELS = Path(__file__).parent / "models"
HEAR_SECONDS = 1.0
"""To hear what would come: answers take milliseconds."""
THIEF = "stolen"
"""An agent that has nothing to do."""
STRANGER = "thief"
"""Name of the connections that are ours, by which the server's own log tells them from the cluster's."""
FORGED = -666.0


@dataclass
class World:
    cluster: LiveCluster
    url: str
    passwords: dict[str, str]
    """Of services and agents on the bus."""
    allocations: dict[str, str]
    """Running ones of the two victims, by agent."""

    @property
    def victim(self) -> str:
        return min(self.allocations)

    @property
    def busy(self) -> str:
        """The other agent, with an allocation and a token of its own."""
        return max(self.allocations)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-security-"))
    directory.chmod(0o711)
    cluster = LiveCluster(directory / "cluster", cpu_slots=1, warm=False)
    try:
        cluster.environment |= OUTLIVES_THE_TEST  # each of the two agents keeps its run
        cluster.up("--agents", "2")
        for _ in range(2):
            cluster.cli("exp", "create", MODELS / "victim/config.yaml", MODELS / "victim")
        cluster.wait_for(lambda: sum(event.type == "WorkersStarted" for event in cluster.events()) == 2)
        cluster.cli("agent", "credentials", THIEF)
        granted = [event.data for event in cluster.events() if event.type == "AllocationGranted"]
        users = cluster.directory / "bus-users"
        yield World(
            cluster,
            f"nats://127.0.0.1:{(cluster.directory / 'nats/port').read_text().strip()}",
            BusUsers(users).services() | json.loads((users / "agents.json").read_text()),
            {data.slots[0].agent_id: data.allocation_id for data in granted},
        )
    finally:
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Thief:
    bus: Client
    refusals: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    async def subscribe(self, *wanted: str) -> None:
        async def hear(message: Any) -> None:
            self.heard.append(f"{message.subject}: {message.data[:80]!r}")

        for subject in wanted:
            await self.bus.subscribe(subject, cb=hear)
        await self.bus.flush()

    async def report(
        self,
        subject: str,
        body: bytes,
        *,
        agent: str,
        sequence: int,
        token: str = "",
        reply: str = "",
        spool: str = "spool of a thief",
    ) -> None:
        headers = {HEADER_AGENT: agent, HEADER_SPOOL: spool, HEADER_SEQUENCE: str(sequence), HEADER_KIND: "x"}
        await self.bus.publish(subject, body, headers=headers | {HEADER_TOKEN: token}, reply=reply)
        await self.bus.flush()


@contextlib.asynccontextmanager
async def logged_in(world: World, agent: str) -> AsyncIterator[Thief]:
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    user = f"agent/{agent}"
    options = {"user": user, "password": world.passwords.get(agent) or _password(world, agent), "allow_reconnect": False}
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                bus = await nats.connect(world.url, name=STRANGER, inbox_prefix=subjects.inbox(user), error_cb=note, **options)
                break
            except (ConnectionError, nats.errors.UnexpectedEOF):  # The server drops who logs in while it reads its users anew.
                await asyncio.sleep(0.1)
    try:
        yield Thief(bus, refusals)
    finally:
        await bus.close()


async def _told(enough: Callable[[], bool]) -> None:
    """The client calls back for what the server refused, a moment after it heard of it."""
    await until_on_loop(enough)


def _password(world: World, agent: str) -> str:
    return str(json.loads((world.cluster.directory / "bus-users/agents.json").read_text())[agent])


async def test_it_hears_nothing_of_others(world: World) -> None:
    async with logged_in(world, THIEF) as thief:
        lanes = [f"tenuto.{kind}.>" for kind in ("log", "ingress", "committed", "position", "agent", "context")]
        await thief.subscribe(
            ">", "_INBOX.>", "_INBOX.*.*", "_R_.>", "$JS.>", *lanes, subjects.assign(world.victim), subjects.HEARTBEATS
        )
        world.cluster.cli("exp", "create", MODELS / "victim/config.yaml", MODELS / "victim")  # so that there is much to hear
        await _told(lambda: len(thief.refusals) >= 13)
        await asyncio.sleep(3 * HEAR_SECONDS)
        assert thief.heard == []
        assert len(thief.refusals) == 13


async def test_it_cannot_read_or_change_streams(world: World) -> None:
    async with logged_in(world, THIEF) as thief:
        inbox = thief.bus.new_inbox()
        await thief.subscribe(inbox)
        consumer = {
            "stream_name": "TENUTO_LOG",
            "config": {"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none"},
        }
        for subject, body in {
            "$JS.API.CONSUMER.CREATE.TENUTO_LOG": json.dumps(consumer).encode(),
            "$JS.API.STREAM.MSG.GET.TENUTO_LOG": b'{"seq": 1}',
            "$JS.API.DIRECT.GET.TENUTO_LOG": b'{"seq": 1}',
            "$JS.API.STREAM.INFO.TENUTO_LOG": b"",
            "$JS.API.CONSUMER.MSG.NEXT.TENUTO_INGRESS.ingress-tracker": b"10",
            "$JS.API.STREAM.PURGE.TENUTO_LOG": b"",
            "$JS.API.STREAM.DELETE.TENUTO_INGRESS": b"",
        }.items():
            await thief.bus.publish(subject, body, reply=inbox)
        await thief.bus.flush()
        await _told(lambda: len(thief.refusals) >= 7)
        await asyncio.sleep(HEAR_SECONDS)
        assert thief.heard == []
        assert len(thief.refusals) == 7


def _said(world: World, service: str) -> str:
    """All of its log, also what was moved away."""
    return "".join(
        file.read_text(errors="replace") for file in sorted((world.cluster.directory / "logs").glob(f"{service}.log*"))
    )


async def test_the_servers_answers_go_into_no_stream(world: World) -> None:
    """JetStream answers at the subject that a message names: that must be none of the log's, of JetStream's own, and of another
    agent's reports. That this search finds what it looks for is shown in `test_answers_of_the_bus.py`."""
    relay = await nats.connect(
        world.url, name=STRANGER, user="relay", password=world.passwords["relay"], inbox_prefix=subjects.inbox("relay")
    )
    js = relay.jetstream()
    before = await log_stream(js)
    async with logged_in(world, THIEF) as thief:
        named = replies(world.victim)
        for sequence, reply in enumerate(named, start=1):
            await thief.report(
                subjects.ingress("logs", THIEF), b"{}", agent=THIEF, sequence=sequence, reply=reply, spool="answers"
            )
        # They are stored, answered and received; then what was sent into the lane of the victim before this one is, too.
        await _told(lambda: all(f" logs/{THIEF}/answers/{n} " in _said(world, "tracker") for n in range(1, len(named) + 1)))
        await thief.report(subjects.ingress("tracker", THIEF), b"{}", agent=THIEF, sequence=1, spool="answers")
        await _told(lambda: f" tracker/{THIEF}/answers/1 " in _said(world, "tracker"))
    after = await log_stream(js)
    world.cluster.wait_for(lambda: world.cluster.client().get("/status")["head"] >= after.last_seq)
    ids = {event.position: str(event.id) for event in world.cluster.events()}
    lane = subjects.ingress("tracker", world.victim)
    strangers = [line for line in _said(world, "tracker").splitlines() if f"parked message {lane}@" in line]
    assert await intrusions(js, before, after, ids, strangers) == []
    assert "does not follow the log" not in _said(world, "relay")
    await relay.close()


def _forgeries(allocation_id: str, agent: str) -> dict[Lane, list[bytes]]:
    trial_id = allocation_id.rpartition("-")[0]
    names = {"trial_id": trial_id, "allocation_id": allocation_id}
    validation = ValidationReport(**names, batches=10**6, length=10**6, metrics={"loss": FORGED})
    checkpoint = CheckpointReport(**names, checkpoint_id="forged", batches=10**6, length=10**6, files=(), size_bytes=0)
    exited = WorkersExitedReport(**names, agent_id=agent, outcome="finished", exit_code=0)
    point = MetricPoint(batches=10**6, time_us=1, metrics={"loss": FORGED})
    line = LogLine(time_us=1, rank=0, stream="stdout", text="forged line")
    return {
        "tracker": [validation.to_json(), checkpoint.to_json()],
        "launcher": [exited.to_json()],
        "metrics": [MetricsReport(**names, points=(point,)).to_json()],
        "logs": [LogsReport(**names, lines=(line,)).to_json()],
    }


async def test_nothing_forged_is_recorded(world: World) -> None:
    cluster, target = world.cluster, world.allocations[world.victim]
    with contextlib.closing(sqlite3.connect(_directory_of(world, world.busy) / "agent.sqlite")) as database:
        tokens = dict(database.execute("SELECT allocation_id, token FROM report_tokens").fetchall())
    own = tokens[world.allocations[world.busy]]
    assert len(own) == 64
    sent = 0
    async with logged_in(world, world.busy) as thief:
        for lane, bodies in _forgeries(target, world.victim).items():
            for body in bodies:  # at the victim's own subject: the bus does not take it
                await thief.report(subjects.ingress(lane, world.victim), body, agent=world.victim, sequence=1)
        for lane in _forgeries(target, world.victim):
            sequence = 0
            for name in (world.victim, world.busy):  # as itself, in its own name and in the victim's
                for body in _forgeries(target, name)[lane]:
                    for token in ("", own, "0" * 64):
                        sequence += name == world.busy
                        sent += 1
                        await thief.report(
                            subjects.ingress(lane, world.busy), body, agent=name, sequence=max(sequence, 1), token=token
                        )
        await _told(lambda: len(thief.refusals) >= 5)
        assert sum("permissions violation for publish" in text for text in thief.refusals) == 5
    refused = cluster.once(lambda: cluster.client().get("/status")["parked"], lambda parked: parked >= sent)
    assert refused >= sent
    _parked_is_no_more_believed_when_it_is_tried_again(cluster)
    assert FORGED not in [event.data.metrics["loss"] for event in cluster.events() if event.type == "ValidationReported"]
    assert not [event for event in cluster.events() if event.type == "CheckpointSaved" and event.data.checkpoint_id == "forged"]
    assert not [event for event in cluster.events() if event.type == "WorkersExited" and event.data.allocation_id == target]
    trial_id = target.rpartition("-")[0]
    assert "forged line" not in cluster.cli("trial", "logs", trial_id).stdout
    assert str(FORGED) not in json.dumps(cluster.json("trial", "describe", trial_id))


def _parked_is_no_more_believed_when_it_is_tried_again(cluster: LiveCluster) -> None:
    items = cluster.json("parked", "ls")
    item = next(item for item in items if "does not show that allocation" in item["reason"])
    number = str(item["number"])
    again = cluster.cli("parked", "redeliver", number, check=False)
    assert again.returncode == 1
    assert f"{number} cannot be handled: agent" in again.stdout
    assert "does not show that allocation" in again.stdout
    shown = cluster.json("parked", "show", number)
    assert (shown["retries"], shown["retry_asked"], shown["kind"]) == (1, False, item["kind"])
    assert "Tried again 1 times." in cluster.cli("parked", "show", number).stdout
    missing = cluster.cli("parked", "show", str(items[-1]["number"] + 1_000), check=False)
    assert (missing.returncode, "parked item" in missing.stderr) == (1, True)


async def test_it_cannot_speak_for_another_agent(world: World) -> None:
    """A heartbeat of an agent without allocations would end all that run there; its answer tells what runs, and the tokens."""
    heartbeat = Heartbeat(
        agent_id=world.victim,
        spool_id="forged",
        pool="default",
        host="h",
        version="1",
        slots=(),
        allocations=(),
        launcher_sequence=99,
    )
    async with logged_in(world, THIEF) as thief:
        with pytest.raises(nats.errors.Error):
            await thief.bus.request(subjects.heartbeat(world.victim), heartbeat.to_json(), timeout=HEAR_SECONDS)
        answer = await thief.bus.request(subjects.heartbeat(THIEF), heartbeat.to_json(), timeout=30)
        reply = HeartbeatReply.from_json(answer.data)
        assert reply.assignments is None
        assert "may not speak for" in reply.error
        with pytest.raises(nats.errors.Error):
            await thief.bus.request(subjects.position("tracker", world.victim), b"", timeout=HEAR_SECONDS)
    assert not [event for event in world.cluster.events() if event.type == "WorkersExited"]
    assert not [event for event in world.cluster.events() if event.type == "AgentLost" and event.data.agent_id == world.victim]


async def test_a_service_does_its_own_work_only(world: World) -> None:
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    for name in ("searcher", "scheduler", "gateway"):
        bus = await nats.connect(
            world.url, name=STRANGER, user=name, password=world.passwords[name], inbox_prefix=subjects.inbox(name), error_cb=note
        )
        for subject in ("tenuto.log.trial.1-1", subjects.ingress("tracker", world.victim), subjects.assign(world.victim)):
            await bus.publish(subject, b"forged")
        await bus.publish("$JS.API.STREAM.DELETE.TENUTO_LOG", b"")
        await bus.flush()
        await _told(lambda: len(refusals) >= 4)
        await bus.close()
        assert len(refusals) == 4, name
        refusals.clear()


async def test_a_revoked_agent_is_out_at_once(world: World) -> None:
    world.cluster.cli("agent", "credentials", "leaver")
    async with logged_in(world, "leaver") as thief:
        assert thief.bus.is_connected
        world.cluster.cli("agent", "revoke", "leaver")
        await until_on_loop(lambda: not thief.bus.is_connected)  # the client calls nobody
        password = thief.bus.options["password"]
        with pytest.raises(nats.errors.Error):
            await nats.connect(world.url, name=STRANGER, user="agent/leaver", password=password, allow_reconnect=False)
    running = {event.data.allocation_id for event in world.cluster.events() if event.type == "WorkersExited"}
    assert running.isdisjoint(world.allocations.values()), "the others go on"
    assert world.cluster.cli("agent", "revoke", "leaver", check=False).returncode == 1


def test_no_service_lacks_a_right_that_it_needs(world: World) -> None:
    """And where one does lack a right, and nothing else shows it, the same search says so: the gateway may not ask the launcher
    whose reports wait, which the status can do without."""
    cluster, users = world.cluster, world.cluster.directory / "bus-users/users.conf"
    cluster.wait_for(lambda: cluster.client().get("/status")["bus"]["ok"])
    assert cluster.refused_on_the_bus(STRANGER) == []
    sound = users.read_text()
    allowed = f'"{subjects.BACKLOG}",'
    assert allowed in sound
    try:
        users.write_text(sound.replace(allowed, "", 1))
        os.kill(cluster.pid("nats"), signal.SIGHUP)

        def refused() -> list[str]:
            cluster.client().get("/status")
            return cluster.refused_on_the_bus(STRANGER)

        def told(lines: list[str]) -> set[str]:
            return {line.partition(": ")[0] for line in lines if subjects.BACKLOG in line}

        lines = cluster.once(refused, lambda found: {"gateway.log", "nats.log"} <= told(found))
        assert told(lines) == {"gateway.log", "nats.log"}
        # The server may drop the login of a process that comes back while it reads its users anew; the process tries again.
        others = [line for line in lines if subjects.BACKLOG not in line]
        assert all("authorization violation" in line.lower() for line in others), others
    finally:
        users.write_text(sound)
        os.kill(cluster.pid("nats"), signal.SIGHUP)


def _directory_of(world: World, agent: str) -> Path:
    return world.cluster.directory / ("agent-2" if agent.endswith("-2") else "agent")
