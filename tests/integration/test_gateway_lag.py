"""The views may know what the state does not yet: what users have seen there counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import EventFeed, LogFeed
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import ExperimentCanceled
from tests.support.gateway_world import gateway_world


class Held:
    """A feed that gives the end of an experiment only when it is let."""

    def __init__(self, log: PostgresEventLog, let: asyncio.Event) -> None:
        self._feed, self._let = LogFeed(log), let

    async def follow(self, after: int, batch_max: int) -> AsyncIterator[list[Event]]:
        async for batch in self._feed.follow(after, batch_max):
            if any(event.type == ExperimentCanceled.TYPE for event in batch):
                await self._let.wait()
            yield batch


async def test_an_experiment_that_is_shown_as_ended_is_deleted(database: Any, tmp_path: Path) -> None:
    let, feeds = asyncio.Event(), list[EventFeed]()

    def feed(log: PostgresEventLog) -> EventFeed:
        feeds.append(Held(log, let) if feeds else LogFeed(log))
        return feeds[-1]

    async with gateway_world(database, tmp_path, feed=feed) as world:
        await world.submit()
        await world.record(ExperimentCanceled(experiment_id=1, trials=0))
        assert (await world.get("/experiments/1"))["state"] == "canceled"
        asked = asyncio.create_task(world.http.delete("/api/v1/experiments/1"))
        while not asked.done() and not world.service.loop._position_waits:  # noqa: ASYNC110 - asks the loop
            await asyncio.sleep(0)
        let.set()
        assert (await asked).json()["changed"] is True
        again = await world.http.post("/api/v1/experiments/1/pause")
        assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict"), "what stays refused is refused"
