"""A real scheduler and a real gateway on a real bus: the queue over REST, with the facts that other services would record."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx

from tenuto.kernel.bus import close, connect
from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.services.gateway.app import build as build_gateway
from tenuto.services.scheduler.app import Scheduler
from tenuto.services.scheduler.app import build as build_scheduler


def context() -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("model_def.py")
        tar.addfile(info, BytesIO())
    return buffer.getvalue()


@dataclass
class QueueWorld:
    log: PostgresEventLog
    scheduler: Scheduler
    http: httpx.AsyncClient
    gateway: Any
    answering: asyncio.Task[None]

    async def tell(self, *facts: EventData) -> None:
        clock = SystemClock()
        events = [
            Event(
                id=clock.new_id(), stream=data.stream(), type=data.TYPE, schema_version=1, time_us=clock.now_us(),
                payload=data.to_json(), actor="test/1",
            )
            for data in facts
        ]  # fmt: skip
        await self.decided((await self.log.append(Append(events=events))).events[-1].position)

    async def decided(self, position: int | None = None) -> None:
        position = position or await self.log.head()
        await self.scheduler.loop.wait_position(position)
        await self.gateway.views_reached(await self.log.head())

    async def submit(self, headers: dict[str, str] | None = None, **resources: Any) -> int:
        config = {
            "name": "x", "entrypoint": "model_def:Trial", "resources": resources,
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}},
        }  # fmt: skip

        files: Any = {"config": (None, json.dumps(config)), "context": ("context.tar.gz", context())}
        response = await self.http.post("/experiments", files=files, headers=headers)
        assert response.status_code == 201, response.text
        await self.decided()
        return int(response.json()["id"])

    async def send(self, method: str, path: str, body: Any) -> Any:
        response = await self.http.request(method, path, json=body)
        assert response.status_code == 200, response.text
        await self.decided()
        return response.json()

    async def queue(self, pool: str = "default") -> dict[int, dict[str, Any]]:
        answer = (await self.http.get("/jobs", params={"pool": pool})).json()
        return {row["experiment_id"]: row for found in answer["pools"] for row in found["rows"]}


@contextlib.asynccontextmanager
async def queue_world(database: Any, nats: Any, tmp_path: Path) -> AsyncIterator[QueueWorld]:
    settings = Settings(
        database_url=database.url, nats_url=nats.url, shared_directory=str(tmp_path), rest_port=0,
        rest_token_file=str(tmp_path / "token"),
    )  # fmt: skip
    log, bus, clock = await PostgresEventLog.connect(database.url), await connect(settings, "test"), SystemClock()
    gateway = await build_gateway(settings, log, bus, clock, feed=lambda: LogFeed(log))
    scheduler = await build_scheduler(settings, log, bus, clock, feed=LogFeed(log), checks=True)
    tasks = [asyncio.create_task(gateway.run()), asyncio.create_task(scheduler.run())]
    await gateway.started()
    await scheduler.loop.wait_ready()
    headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
    url = f"http://127.0.0.1:{gateway.port}/api/v1"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        yield QueueWorld(log, scheduler, http, gateway.doors.base, tasks[1])
    for task in tasks:
        await stop_task(task)
    await close(bus)
    await log.close()
