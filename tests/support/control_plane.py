"""Stands in for launcher and receivers in agent tests, on a real NATS server: assigns, collects reports in order, confirms."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import tarfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import NotFoundError

from tenuto.kernel.bus import close, connect, ensure_streams
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Assignment, Assignments, AssignReply, Heartbeat, HeartbeatReply
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.reports import (
    HEADER_KIND,
    HEADER_ROUND,
    HEADER_SEQUENCE,
    HEADER_SPOOL,
    LAUNCHER_REPORT,
    Committed,
    WorkersExitedReport,
)
from tenuto.schemas.subjects import Lane
from tests.support import litter
from tests.support.waiting import SECONDS_MAX

AGENT = "node-1"
FETCH_SECONDS = 0.2


def make_context(shared: Path, body: bytes = b"LR = 0.1\n") -> str:
    """A packed model directory in the shared directory, with `body` as its model_def.py; returns its hash."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        info = tarfile.TarInfo("model_def.py")
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    digest = hashlib.sha256(data.getvalue()).hexdigest()
    (shared / "contexts").mkdir(parents=True, exist_ok=True)
    (shared / "contexts" / f"{digest}.tar.gz").write_bytes(data.getvalue())
    return digest


def make_config(**changes: Any) -> ExperimentConfig:
    base: dict[str, Any] = {
        "name": "test",
        "entrypoint": "model_def:Trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
    }
    return ExperimentConfig.model_validate(base | changes)


def make_assignment(
    context_hash: str, trial: int = 1, allocation: int = 1, slots: tuple[int, ...] = (0,), **changes: Any
) -> Assignment:
    mode = changes.pop("mode", "train")
    values: dict[str, Any] = {
        "allocation_id": f"1-{trial}-{allocation}",
        "trial_id": f"1-{trial}",
        "trial_number": trial,
        "experiment_id": 1,
        "config": make_config(),
        "context_hash": context_hash,
        "hyperparameters": {"mode": mode},
        "trial_seed": 7,
        "experiment_seed": 9,
        "slots": (AgentSlots(agent_id=AGENT, slot_ids=slots),),
        "checkpoint": None,
        "target_length": 10,
    }
    return Assignment(**(values | changes))


def agent_settings(nats_url: str, directory: Path, **changes: Any) -> Settings:
    """Settings of an agent with one CPU slot, with its directories `agent` and `shared` in `directory`."""
    values: dict[str, Any] = {
        "nats_url": nats_url,
        "agent_directory": str(directory / "agent"),
        "shared_directory": str(directory / "shared"),
        "agent_id": AGENT,
        "cpu_slots": 1,
        "heartbeat_seconds": 0.2,
        "worker_inherits": litter.MARKS,
    }
    return Settings(**(values | changes))


class ControlPlane:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.position = 0
        self.assigned: tuple[Assignment, ...] | None = ()
        """None while the launcher answers that it is still reading the log."""
        self.gone_unheard = 0
        """So many times the launcher cannot record yet that an agent is gone."""
        self.cluster = ""
        self.heartbeats: list[Heartbeat] = []
        self.reports: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        """Committed reports by lane, each as (kind, body)."""
        self.held: set[str] = set()
        """Lanes whose receivers are away."""
        self._positions: dict[tuple[str, str], int] = defaultdict(int)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._bus: Client | None = None

    async def start(self) -> None:
        self._bus = await connect(self._settings, "control plane")
        await ensure_streams(self._bus.jetstream(), self._settings)
        await self._bus.subscribe(subjects.HEARTBEATS, cb=self._on_heartbeat)
        for lane in subjects.LANES:
            await self._bus.subscribe(subjects.position(lane, AGENT), cb=self._answerer(lane))
            self._tasks.append(asyncio.create_task(self._receive(lane)))

    async def stop(self) -> None:
        await asyncio.gather(*map(stop_task, self._tasks))
        if self._bus is not None:
            await close(self._bus)

    async def assign(self, *assignments: Assignment) -> AssignReply:
        """Sends the agent these assignments now, and again in each answer to a heartbeat."""
        assert self._bus is not None
        self.position += 1
        self.assigned = assignments
        body = self._told(assignments).to_json()
        reply = await self._bus.request(subjects.assign(AGENT), body, timeout=SECONDS_MAX)
        return AssignReply.from_json(reply.data)

    def exits(self) -> dict[str, WorkersExitedReport]:
        parsed = [LAUNCHER_REPORT.validate_json(body) for _, body in self.reports["launcher"]]
        return {report.allocation_id: report for report in parsed if isinstance(report, WorkersExitedReport)}

    def kinds(self, lane: str) -> list[str]:
        return [kind for kind, _ in self.reports[lane]]

    async def until(self, condition: Callable[[], Any], seconds: float = SECONDS_MAX) -> None:
        """Waits until the condition holds; it is evaluated at each message received."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            came = {lane: self.kinds(lane) for lane in self.reports}
            raise AssertionError(f"it did not come in {seconds} s; reports: {came}; last: {self.heartbeats[-1:]}") from None

    async def exit_of(self, allocation_id: str) -> WorkersExitedReport:
        await self.until(lambda: allocation_id in self.exits())
        return self.exits()[allocation_id]

    def forget(self, lane: Lane) -> None:
        """The receiver's record was replaced by an empty one."""
        self._positions = defaultdict(int, {key: value for key, value in self._positions.items() if key[0] != lane})

    async def _on_heartbeat(self, message: Msg) -> None:
        self.heartbeats.append(heartbeat := Heartbeat.from_json(message.data))
        self._changed.set()
        if not message.reply:
            return
        told = None if self.assigned is None else self._told(self.assigned)
        if heartbeat.gone and self.gone_unheard:
            self.gone_unheard, told = self.gone_unheard - 1, None
        await message.respond(HeartbeatReply(lease_seconds=10, assignments=told).to_json())

    def _told(self, assignments: tuple[Assignment, ...]) -> Assignments:
        tokens = {assignment.allocation_id: f"token of {assignment.allocation_id}" for assignment in assignments}
        return Assignments(position=self.position, cluster=self.cluster, assignments=assignments, tokens=tokens)

    def _answerer(self, lane: Lane) -> Callable[[Msg], Any]:
        async def answer(message: Msg) -> None:
            assert self._bus is not None
            spool_id, subject = (message.headers or {})[HEADER_SPOOL], subjects.ingress(lane, AGENT)
            if lane in self.held:
                return
            try:
                info = await self._bus.jetstream().stream_info(subjects.INGRESS_STREAM, subjects_filter=subject)
                stored: int | None = (info.state.subjects or {}).get(subject, 0)
            except NotFoundError:
                stored = 0
            except Exception:
                stored = None
            word = Committed(spool_id=spool_id, sequence=self._positions[lane, spool_id], stored=stored)
            await message.respond(word.to_json())

        return answer

    async def _receive(self, lane: Lane) -> None:
        assert self._bus is not None
        js = self._bus.jetstream()
        subscription = None
        while True:
            if lane in self.held:
                await asyncio.sleep(FETCH_SECONDS)
                continue
            try:
                if subscription is None:
                    await ensure_streams(js, self._settings)
                    subscription = await js.pull_subscribe(
                        subjects.ingress(lane, AGENT), durable=f"test-{lane}", stream=subjects.INGRESS_STREAM
                    )
                messages = await subscription.fetch(100, timeout=FETCH_SECONDS)
            except (NatsTimeoutError, TimeoutError):
                # After a wiped store neither stream nor consumer is there, and fetch only times out.
                with contextlib.suppress(Exception):
                    try:
                        await js.consumer_info(subjects.INGRESS_STREAM, f"test-{lane}")
                    except NotFoundError:
                        subscription = None
                continue
            except Exception:
                subscription = None
                await asyncio.sleep(FETCH_SECONDS)
                continue
            for message in messages:
                await self._take(lane, message)

    async def _take(self, lane: Lane, message: Msg) -> None:
        assert self._bus is not None
        headers = message.headers or {}
        spool_id, sequence = headers[HEADER_SPOOL], int(headers[HEADER_SEQUENCE])
        expected = self._positions[lane, spool_id] + 1
        if sequence == expected:
            self.reports[lane].append((headers[HEADER_KIND], message.data))
            self._positions[lane, spool_id] = sequence
        await message.ack()
        word = Committed(
            spool_id=spool_id,
            sequence=self._positions[lane, spool_id],
            resend=sequence > expected,
            round=int(headers[HEADER_ROUND]),
        )
        await self._bus.publish(subjects.committed(lane, AGENT), word.to_json())
        self._changed.set()
