"""Monitoring of this process, where TENUTO_METRICS_LISTEN asks for it. Otherwise nothing listens, and no gauge is looked up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from nats.aio.client import Client
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.monitoring.instruments import BUILD_INFO, REGISTRY
from tenuto.kernel.monitoring.sampling import MonitoredState, Sampler
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.version import __version__

Begin = Callable[[EventLog, Client, MonitoredState], None]
"""Called once the service is composed: from then on its gauges are looked up."""


@contextlib.asynccontextmanager
async def monitored(name: str, settings: Settings) -> AsyncIterator[Begin]:
    """Listens from now on, before the database and the bus are reached: who waits for them is alive. Raises SettingsError."""
    if not settings.metrics_listen:
        yield lambda log, bus, watched: None
        return
    from tenuto.kernel.monitoring.endpoint import MonitoringEndpoint

    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=REGISTRY)
    BUILD_INFO.labels(name, __version__).set(1)
    endpoint, sampler = MonitoringEndpoint(REGISTRY), Sampler(REGISTRY)
    tasks = [asyncio.create_task(endpoint.run(endpoint.listen(*settings.metrics_address())), name="metrics")]

    def begin(log: EventLog, bus: Client, watched: MonitoredState) -> None:
        endpoint.watched = watched
        tasks.append(asyncio.create_task(sampler.run(log, bus, watched), name="samples"))

    try:
        yield begin
    finally:
        for task in tasks:
            await stop_task(task)
