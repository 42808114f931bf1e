"""The frame of every service process: settings, logging, signals, the log and the bus. Each `__main__` uses it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from nats.aio.client import Client

from tenuto.kernel import bus as bus_module
from tenuto.kernel import telemetry
from tenuto.kernel.clock import Clock, SystemClock
from tenuto.kernel.commit_draft import Poisoned
from tenuto.kernel.eventlog import EventLog, Fenced, LogUnavailable
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.exit_codes import EXIT_FENCED, EXIT_HALTED, EXIT_SETTINGS
from tenuto.kernel.loop import FeedBroken
from tenuto.kernel.monitoring.process import monitored
from tenuto.kernel.monitoring.sampling import MonitoredState
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task

logger = logging.getLogger(__name__)

STOP_SECONDS_MAX = 5.0
"""Longest wait for a clean stop; then tasks that still run are cancelled again."""
CONNECT_SECONDS_BETWEEN = 0.5
CONNECT_MESSAGE_SECONDS = 5.0
"""Pause between warnings while waiting for PostgreSQL: often enough to see, seldom enough to read."""


class ServiceApp(Protocol):
    def watched(self) -> MonitoredState:
        """State of the service for monitoring."""
        ...

    async def run(self) -> None:
        """Runs until cancelled; then cleans up."""
        ...


Build = Callable[[Settings, EventLog, Client, Clock], Awaitable[ServiceApp]]


def run_service(name: str, build: Build) -> None:
    """Runs until SIGTERM or SIGINT, then stops cleanly. Exits with a code that tells why the process ended.

    `build(settings, log, bus, clock)` is the service's composition root. It is called once PostgreSQL and NATS have been reached;
    both clients recover by themselves from later losses.
    """
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)
    configure_logging(settings.log_level)
    if not settings.database_url:
        print(f"{name}: TENUTO_DATABASE_URL is not set; give the URL of the PostgreSQL database.", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)
    telemetry.configure(f"tenuto-{name}", settings)
    code = _run(name, _serve(name, settings, build))
    telemetry.shutdown()
    sys.exit(code)


def configure_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)


def _run(name: str, main: Awaitable[int]) -> int:
    async def runner() -> int:
        return await main

    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as loop_runner:
        return loop_runner.run(runner())


def spare_collector() -> None:
    """Excludes the objects that exist now from garbage collection. Imported modules live as long as the process, and each
    burst of decisions triggers the collector; without this it would scan them again and again (a tenth of the time of a
    search's decisions)."""
    gc.collect()
    gc.freeze()


async def _serve(name: str, settings: Settings, build: Build) -> int:
    try:
        await _until_signalled(name, _open_and_run(name, settings, build))
    except Fenced as error:
        logger.critical("%s was fenced: %s. This instance stops.", name, error)
        return EXIT_FENCED
    except (Poisoned, FeedBroken) as error:
        logger.critical("%s halts: %s", name, error)
        return EXIT_HALTED
    except SettingsError as error:
        logger.critical("%s cannot start: %s", name, error)
        return EXIT_SETTINGS
    return 0


async def _open_and_run(name: str, settings: Settings, build: Build) -> None:
    async with monitored(name, settings) as begin:
        log = await open_log(name, settings.database_url)
        try:
            bus = await bus_module.connect(settings, name)
            try:
                app = await build(settings, log, bus, SystemClock())
                spare_collector()
                begin(log, bus, app.watched())
                logger.info("%s is ready", name)
                await app.run()
            finally:
                await bus_module.close(bus)
        finally:
            await log.close()


async def open_log(name: str, url: str) -> PostgresEventLog:
    """Opens the log. Waits for PostgreSQL as long as it takes, and logs that it does."""
    told = -CONNECT_MESSAGE_SECONDS
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await PostgresEventLog.connect(url)
        except LogUnavailable as error:
            if loop.time() - told >= CONNECT_MESSAGE_SECONDS:
                told = loop.time()
                logger.warning("%s waits for PostgreSQL: %s", name, error)
            await asyncio.sleep(CONNECT_SECONDS_BETWEEN)


async def _until_signalled(name: str, main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(main, name=name)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            logger.info("%s stops", name)
            await stop_task(running, seconds_between=STOP_SECONDS_MAX)
        else:
            running.result()
    finally:
        stopping.cancel()
