"""The searcher on the log: one that is stopped and started again decides what one would that never stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

from nats.aio.client import Client

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append, EventLog
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.search import ExperimentFailed, TrialExtended, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.schemas.ids import name_id
from tenuto.services.searcher.adapters.samplers import _SAMPLERS
from tenuto.services.searcher.app import Searcher, build
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.effects import FAILURES_MAX
from tests.support.memory_log import MemoryEventLog
from tests.support.said import said
from tests.support.search_world import ENDS, submitted
from tests.support.waiting import SECONDS_MAX

SETTINGS = Settings(snapshot_events=10, batch_events_max=7)


@contextlib.asynccontextmanager
async def running(log: EventLog) -> AsyncIterator[Searcher]:
    app = await build(SETTINGS, log, Client(), SystemClock(), feed=LogFeed(log), checks=True)
    task = asyncio.create_task(app.run())
    try:
        yield app
    finally:
        await stop_task(task)


def told(data: EventData, *key: Any) -> Event:
    return Event(
        id=name_id(data.TYPE, *map(str, key)),
        stream=data.stream(),
        type=data.TYPE,
        schema_version=data.VERSION,
        time_us=0,
        payload=data.to_json(),
        actor=f"{data.OWNER}/1",
    )


def answer(event: Event) -> Event | None:
    """A world in which every trial does at once what it is told."""
    data = event.data
    match data:
        case TrialRequested() | TrialExtended():
            number, length = int(data.trial_id.split("-")[1]), data.target_length
            return told(
                ValidationReported(
                    trial_id=data.trial_id,
                    allocation_id="a",
                    batches=length,
                    length=length,
                    metrics={"loss": (number * 7 % 11) / length},
                ),
                data.trial_id,
                length,
            )
        case TrialStopped():
            return told(TrialFinished(trial_id=data.trial_id, batches=0, length=0, checkpoint_id=None), data.trial_id)
        case _:
            return None


async def drive(log: EventLog, after: int, steps_max: int) -> int:
    """Answers the searcher's events, at most so many of them; returns the position up to which all are answered."""
    async for _ in log.watch():
        for event in await log.read(after, 500):
            after = event.position
            if event.type in ENDS or steps_max == 0:
                return after if steps_max else after - 1
            if (reply := answer(event)) is not None:
                await log.append(Append([reply]))
                steps_max -= 1
    raise AssertionError("the log is watched for ever")


async def test_a_restarted_searcher_goes_on_in_memory() -> None:
    await restarted_searcher_goes_on(MemoryEventLog())


async def test_a_restarted_searcher_goes_on_in_postgres(database: Any) -> None:
    log = await PostgresEventLog.connect(database.url)
    try:
        await restarted_searcher_goes_on(log)
    finally:
        await log.close()


async def restarted_searcher_goes_on(log: EventLog) -> None:
    await log.append(Append([told(submitted({"name": "asha", "max_trials": 20, "max_concurrent_trials": 4}), "submitted")]))
    after = 0
    for steps in (1, 9, 20, 1000):
        async with running(log):
            after = await drive(log, after, steps)
    events = await log.read(0, 1000)
    assert events[-1].type == "ExperimentCompleted"
    verdict = verify_decisions(SearcherCore(), events)
    assert verdict.ok, verdict.divergences
    assert verdict.decisions == sum(event.actor == f"searcher/{SearcherCore().rule_version}" for event in events)
    async with running(log) as app:
        await app.loop.wait_position(await log.head())
        assert app.loop.core.dump(app.loop.state) == SearcherCore().dump(fold(SearcherCore(), events))
        assert not app.loop.state.experiments


async def test_proposals_of_a_sampler_survive_restarts() -> None:
    log = MemoryEventLog()
    submission = submitted({"name": "tpe", "max_trials": 14, "max_concurrent_trials": 3, "startup_trials": 4})
    await log.append(Append([told(submission, "submitted")]))
    after = 0
    for steps in (2, 9, 1000):
        async with running(log):
            async with asyncio.timeout(SECONDS_MAX):
                after = await drive(log, after, steps)
    events = await log.read(0, 1000)
    assert events[-1].type == "ExperimentCompleted"
    asked = [event.data for event in events if isinstance(event.data, TrialRequested)]
    assert [data.trial_number for data in asked] == list(range(1, 15)), "each trial is proposed once"
    assert said(asked[-1]).endswith("results.")
    verdict = verify_decisions(SearcherCore(), events)
    assert verdict.ok, verdict.divergences
    assert verdict.from_commands == 14


async def failed_search(startup_trials: int, **searcher: Any) -> list[Event]:
    """A search whose sampler does not work, to its end."""
    log = MemoryEventLog()
    settings = {"name": "tpe", "max_trials": 14, "max_concurrent_trials": 3, "startup_trials": startup_trials} | searcher
    await log.append(Append([told(submitted(settings), "submitted")]))
    async with running(log) as app, asyncio.timeout(SECONDS_MAX):
        app._proposer._retry_seconds = 0.01
        await drive(log, 0, 1000)
    events = await log.read(0, 1000)
    verdict = verify_decisions(SearcherCore(), events)
    assert verdict.ok, verdict.divergences
    return events


async def test_a_search_without_its_sampler_fails_before_anything_trains() -> None:
    with patch.dict("tenuto.services.searcher.adapters.samplers._PACKAGES", {"tpe": "no-such-package"}):
        events = await failed_search(startup_trials=4)
    assert [event.type for event in events] == ["ExperimentSubmitted", "ExperimentStarted", "ExperimentFailed"]
    assert isinstance(events[-1].data, ExperimentFailed)
    assert "needs the package no-such-package" in events[-1].data.error


async def test_a_sampler_that_goes_on_failing_ends_its_search_when_what_runs_is_finished() -> None:
    failures = 0

    def broken(*_: Any) -> Any:
        nonlocal failures
        failures += 1
        raise MemoryError("no room for the model")

    with patch.dict("tenuto.services.searcher.adapters.samplers._SAMPLERS", {"tpe": broken}):
        events = await failed_search(startup_trials=4)
    assert failures == FAILURES_MAX
    ended = events[-1].data
    assert isinstance(ended, ExperimentFailed)
    assert ended.trials >= 4
    assert "failed 5 times, the last time with MemoryError: no room for the model" in ended.error
    assert sum(event.type == "TrialFinished" for event in events) == ended.trials


async def test_a_failure_of_a_sampler_that_passes_costs_nothing() -> None:
    failures = 0
    works = _SAMPLERS["tpe"]

    def moody(*arguments: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures % FAILURES_MAX:
            raise MemoryError
        return works(*arguments)

    with patch.dict("tenuto.services.searcher.adapters.samplers._SAMPLERS", {"tpe": moody}):
        events = await failed_search(startup_trials=4, max_trials=7, max_concurrent_trials=1)
    assert events[-1].type == "ExperimentCompleted"
    assert failures >= 3 * FAILURES_MAX, "a proposal that came too late is made again"


async def test_a_killed_process_goes_on(database: Any, nats: Any) -> None:
    environment = os.environ | {"TENUTO_DATABASE_URL": database.url, "TENUTO_NATS_URL": nats.url}
    log = await PostgresEventLog.connect(database.url)
    submission = submitted({"name": "asha", "max_trials": 12, "max_concurrent_trials": 4})
    await log.append(Append([told(submission, "submitted")]))
    after = 0
    for steps in (3, 11, 1000):
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tenuto.services.searcher", env=environment)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                after = await drive(log, after, steps)
        finally:
            process.kill()
            await process.wait()
    events = await log.read(0, 1000)
    assert events[-1].type == "ExperimentCompleted"
    assert verify_decisions(SearcherCore(), events).ok
    await log.close()
