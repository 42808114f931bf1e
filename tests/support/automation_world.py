"""A real gateway, and automations that run against it in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tenuto import automation
from tenuto.automation.running import run
from tenuto.client import ClientError
from tenuto.client.target import Target
from tenuto.schemas.events.search import ExperimentCompleted
from tests.support.gateway_world import CONFIG, WHY, World
from tests.support.waiting import SECONDS_MAX, ended, until_async


class Around(World):
    automations: tuple[asyncio.Task[None], ...] = ()
    """Those that run and are waited for."""

    @property
    def target(self) -> Target:
        return Target(str(self.http.base_url), self.service.doors.base.token, "the test")

    async def complete(self, *experiment_ids: int) -> None:
        await self.record(
            *(
                ExperimentCompleted(experiment_id=number, best_trial_id=None, best_metric=None, trials=1, reason=WHY)
                for number in experiment_ids
            )
        )

    async def submitted(self, count: int, config: str = CONFIG) -> list[int]:
        return [int((await self.submit(config)).json()["id"]) for _ in range(count)]

    async def until(self, right: Callable[[Any], bool], path: str = "/automations/mine") -> Any:
        return await until_async(lambda: self.get(path), right, gone=ended(*self.automations))

    @contextlib.asynccontextmanager
    async def running(self, app: automation.App, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        stop = asyncio.Event()
        runs = sum(item["run"] for item in await self.get("/automations"))
        options.setdefault("say", print)  # shown where a test fails
        task = asyncio.create_task(run(app, self.target, stop=stop, **options))
        try:
            await self.until(lambda found: task.done() or sum(item["run"] for item in found) > runs, "/automations")
            self.automations = (task,)
            yield task
        finally:
            self.automations = ()
            stop.set()
            with contextlib.suppress(ClientError):
                await asyncio.wait_for(task, SECONDS_MAX)


def at(view: Any, rule: str) -> Any:
    return next(item for item in view["rules"] if item["rule"] == rule)
