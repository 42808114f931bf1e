"""Gauges that are sampled at intervals: positions of consumers, lengths of queues, slots held.

A timer samples, not the scrape of the metrics: so a scraper costs no query, however often it comes. A source that fails or
takes too long is left out until it answers again: an old number would look like a fresh one. Readiness, which takes no query, is
told as it is: a service that starts would else be unready in the metrics for SAMPLE_SECONDS after `/readyz` says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from nats.aio.client import Client
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.monitoring import catalogue, instruments
from tenuto.kernel.monitoring.catalogue import Measure

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 10.0
"""Pause between looks: Prometheus usually asks every 15 to 60 s."""
SOURCE_SECONDS_MAX = 5.0
"""Longest time of one source: the others are not held up by an unreachable database."""
POOLS_SHOWN_MAX = 200
"""Most pools with series of their own; others are summed under OTHERS. An experiment may name any pool, so their number is the
users' choice."""
OTHERS = "(others)"


class Sample(NamedTuple):
    measure: Measure
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Awaitable[Sequence[Sample]]]
"""Looks once. It must not block; it may raise what it likes."""


class LogReader(Protocol):
    """Reader of the log."""

    @property
    def position(self) -> int: ...


class MonitoredState(NamedTuple):
    """State that a service exposes for monitoring."""

    ready: Callable[[], str]
    """Reason why the service is not ready; empty: it is."""
    sources: Mapping[str, Source] = {}
    """Sources of samples, by name."""
    consumers: Mapping[str, LogReader] = {}
    """Readers of the log in this process, by name."""
    available: Callable[[], bool] = lambda: True
    """False while the log cannot be written."""

    def adding(self, sources: Mapping[str, Source], consumers: Mapping[str, LogReader] | None = None) -> MonitoredState:
        return self._replace(sources={**self.sources, **sources}, consumers={**self.consumers, **(consumers or {})})


class Samples(Collector):
    """The latest samples, as the registry asks for them."""

    def __init__(self) -> None:
        self._by_source: dict[str, Sequence[Sample]] = {}

    def put(self, source: str, samples: Sequence[Sample]) -> None:
        self._by_source[source] = samples

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for samples in list(self._by_source.values()):
            for measure, value, labels in samples:
                family = families.get(measure.name)
                if family is None:
                    family = families[measure.name] = GaugeMetricFamily(measure.name, measure.meaning, labels=measure.labels)
                family.add_metric(labels, value)
        yield from families.values()


class Readiness(Collector):
    """Readiness as `/readyz` reports it, read when the registry collects."""

    def __init__(self, reason: Callable[[], str]) -> None:
        """`reason`: why the service is not ready; empty: it is."""
        self._reason = reason

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(catalogue.READY.name, catalogue.READY.meaning, value=float(not self._reason()))


class Sampler:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._samples = Samples()
        registry.register(self._samples)
        self._seldom: dict[str, Seldom] = {}

    async def run(self, log: EventLog, bus: Client, watched: MonitoredState) -> None:
        """Samples until cancelled."""
        sources = {"log": lambda: of_log(log, bus, watched), **watched.sources}
        while True:
            await asyncio.gather(*(self._look(name, source) for name, source in sources.items()))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _look(self, name: str, source: Source) -> None:
        seldom = self._seldom.setdefault(name, Seldom(logger))
        try:
            async with asyncio.timeout(SOURCE_SECONDS_MAX):
                found = await source()
        except Exception as error:  # whatever it is: metrics end no service; its text might quote an address with a password
            instruments.SAMPLE_FAILURES.labels(name).inc()
            seldom.warn(f"metrics of {name} are left out: {type(error).__name__}")
            found = await _unavailable(log_too=name == "log")
        else:
            seldom.over(f"metrics of {name} are there again")
        self._samples.put(name, found)


async def _unavailable(*, log_too: bool) -> Sequence[Sample]:
    return [Sample(catalogue.LOG_AVAILABLE, 0)] if log_too else []


async def of_log(log: EventLog, bus: Client, watched: MonitoredState) -> Sequence[Sample]:
    head = await log.head()
    found = [
        Sample(catalogue.LOG_AVAILABLE, float(watched.available())),
        Sample(catalogue.BUS_CONNECTED, float(bus.is_connected)),
        Sample(catalogue.LOG_HEAD, head),
    ]
    for name, consumer in sorted(watched.consumers.items()):
        found.append(Sample(catalogue.CONSUMER_POSITION, consumer.position, (name,)))
        found.append(Sample(catalogue.CONSUMER_LAG, max(0, head - consumer.position), (name,)))
    return found


def by_pool(measure: Measure, values: Mapping[tuple[str, ...], float], shown: Collection[str]) -> list[Sample]:
    """Samples of `values`, whose keys begin with a pool. Pools that are not `shown` are summed."""
    found: dict[tuple[str, ...], float] = {}
    for labels, value in sorted(values.items()):
        own = labels if labels[0] in shown else (OTHERS, *labels[1:])
        found[own] = found.get(own, 0.0) + value
    return [Sample(measure, value, labels) for labels, value in found.items()]


def shown_pools(sizes: Mapping[str, float]) -> frozenset[str]:
    """The largest ones."""
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    return frozenset(ordered[:POOLS_SHOWN_MAX])
