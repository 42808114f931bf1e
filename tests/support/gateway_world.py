"""A real gateway on a database of its own, and the events that other services would record."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import EventFeed, LogFeed
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, AllocationReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.events.trial import (
    CheckpointFile,
    CheckpointSaved,
    ValidationReported,
)
from tenuto.services.gateway.app import GatewayService, build
from tests.support.facts import recorded

CONFIG = """
name: digits
entrypoint: model_def:Trial
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {batches: 100}}
"""


WHY = Reason(rule="test")


SLOTS = (AgentSlots(agent_id="node", slot_ids=(0,)),)


def context(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in (files or {"model_def.py": b"class Trial: ..."}).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


CONTEXT = context()


@dataclass
class World:
    service: GatewayService
    log: PostgresEventLog
    http: httpx.AsyncClient
    shared: Path
    config: str = CONFIG

    async def submit(
        self, config: str | None = None, archive: bytes | None = None, origin: str | None = None, **headers: str
    ) -> httpx.Response:
        files: Any = {
            "config": (None, config or self.config),
            "context": ("context.tar.gz", CONTEXT if archive is None else archive),
        }
        if origin is not None:
            files["origin"] = (None, origin)
        return await self.http.post("/api/v1/experiments", files=files, headers=headers)

    async def record(self, *payloads: EventData) -> None:
        """Append events as other services do, and wait until they can be seen."""
        await self.service.doors.base.views_reached(await recorded(self.log, *payloads))

    async def get(self, path: str) -> Any:
        response = await self.http.get(f"/api/v1{path}")
        assert response.status_code == 200, response.text
        return response.json()

    async def error(self, method: str, path: str, **arguments: Any) -> tuple[int, str, str]:
        response = await self.http.request(method, f"/api/v1{path}", **arguments)
        body = response.json()
        error = body["error"]
        assert response.headers["content-type"] == "application/problem+json"  # RFC 9457, whatever went wrong
        assert (body["type"], body["status"], body["detail"]) == ("about:blank", response.status_code, error["message"])
        assert body["title"] == HTTPStatus(response.status_code).phrase
        return response.status_code, error["code"], error["message"]


W = TypeVar("W", bound=World)


@contextlib.asynccontextmanager
async def gateway_world(
    database: Any,
    tmp_path: Path,
    kind: type[W] = World,
    config: str = CONFIG,  # type: ignore[assignment]
    without: frozenset[str] = frozenset(),
    feed: Callable[[PostgresEventLog], EventFeed] = LogFeed,
    **settings_of_its_own: Any,
) -> AsyncIterator[W]:
    """Base of the fixture `world` of the modules that use it. `config`: default configuration of submitted experiments.
    `without`: subjects that are left out. `feed`: makes the feed of each reader,
    first that of the views, then that of the state."""
    settings = Settings(
        database_url=database.url,
        shared_directory=str(tmp_path / "shared"),
        rest_port=settings_of_its_own.pop("rest_port", 0),
        rest_token_file=str(tmp_path / "token"),
        context_bytes_max=50_000,
        **settings_of_its_own,
    )
    log = await PostgresEventLog.connect(database.url)
    service = await build(settings, log, None, SystemClock(), feed=lambda: feed(log), without=without)
    running = asyncio.create_task(service.run())
    await service.started()
    headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", headers=headers, timeout=60) as http:
        yield kind(service, log, http, tmp_path / "shared", config)
    await stop_task(running)
    await log.close()


def requested(number: int) -> TrialRequested:
    return TrialRequested(
        experiment_id=1,
        trial_id=f"1-{number}",
        trial_number=number,
        hyperparameters={"lr": 0.1},
        seed=2**62,
        target_length=10,
        reason=WHY,
    )


def granted(allocation: str) -> AllocationGranted:
    return AllocationGranted(
        pool="default", allocation_id=allocation, trial_id=allocation[:3], experiment_id=1, slots=SLOTS, reason=WHY
    )


def released(allocation: str) -> AllocationReleased:
    return AllocationReleased(pool="default", allocation_id=allocation, trial_id=allocation[:3], experiment_id=1, reason=WHY)


def validated(batches: int, **metrics: float) -> ValidationReported:
    return ValidationReported(trial_id="1-1", allocation_id="1-1-1", batches=batches, length=batches, metrics=metrics)


def saved(batches: int, data: bytes = b"") -> CheckpointSaved:
    file = CheckpointFile(path="model", size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return CheckpointSaved(
        trial_id="1-1",
        allocation_id="1-1-1",
        checkpoint_id=f"1-1-1-{batches}",
        batches=batches,
        length=batches,
        files=(file,),
        size_bytes=len(data),
        location=f"store://shared/1/1-1/manifests/1-1-1-{batches}.json",
    )


async def state(world: World) -> str:
    return str((await world.get("/trials/1-1"))["state"])
