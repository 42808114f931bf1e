"""Counters and timers of events as they happen. They cost some microseconds per commit or request, scraped or not."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.catalogue import Measure

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, of the time since which it counts: process_start_time_seconds says that
REGISTRY = CollectorRegistry()
"""Registry of this process. The library's own one is left alone: other libraries add to it."""


def _counter(measure: Measure) -> Counter:
    assert measure.kind == "counter"
    return Counter(measure.name, measure.meaning, measure.labels, registry=REGISTRY)


def _histogram(measure: Measure) -> Histogram:
    assert measure.kind == "histogram"
    return Histogram(measure.name, measure.meaning, measure.labels, buckets=measure.buckets, registry=REGISTRY)


BUILD_INFO = Gauge(catalogue.BUILD_INFO.name, catalogue.BUILD_INFO.meaning, catalogue.BUILD_INFO.labels, registry=REGISTRY)
SAMPLE_FAILURES = _counter(catalogue.SAMPLE_FAILURES)
INPUTS = _counter(catalogue.INPUTS)
RECORDED = _counter(catalogue.RECORDED)
COMMANDS = _counter(catalogue.COMMANDS)
DECIDE_SECONDS = _histogram(catalogue.DECIDE_SECONDS)
COMMIT_SECONDS = _histogram(catalogue.COMMIT_SECONDS)
DECISION_SECONDS = _histogram(catalogue.DECISION_SECONDS)
COMMAND_SECONDS = _histogram(catalogue.COMMAND_SECONDS)
PUBLISHED = _counter(catalogue.PUBLISHED)
PUBLISH_SECONDS = _histogram(catalogue.PUBLISH_SECONDS)
REPORTS = _counter(catalogue.REPORTS)
INGRESS_SECONDS = _histogram(catalogue.INGRESS_SECONDS)
REPORTS_PARKED = _counter(catalogue.REPORTS_PARKED)
EFFECT_ATTEMPTS = _counter(catalogue.EFFECT_ATTEMPTS)
EFFECT_SECONDS = _histogram(catalogue.EFFECT_SECONDS)
AGENTS_LOST = _counter(catalogue.AGENTS_LOST)
NODE_FAILURES = _counter(catalogue.NODE_FAILURES)
REQUESTS = _counter(catalogue.REQUESTS)
REQUEST_SECONDS = _histogram(catalogue.REQUEST_SECONDS)


class OfLoop:
    """Instruments of one service's loop, their labels looked up once."""

    def __init__(self, service: str) -> None:
        self.inputs, self.recorded = INPUTS.labels(service), RECORDED.labels(service)
        self.accepted, self.refused = COMMANDS.labels(service, "accepted"), COMMANDS.labels(service, "refused")
        self.failed = COMMANDS.labels(service, "failed")
        self.decide_seconds, self.commit_seconds = DECIDE_SECONDS.labels(service), COMMIT_SECONDS.labels(service)
        self.decision_seconds, self.command_seconds = DECISION_SECONDS.labels(service), COMMAND_SECONDS.labels(service)

    def committed(self, inputs: int, events: int, answers: Sequence[str], decision_seconds: float | None) -> None:
        """`answers` to commands: the code of a refusal, or nothing. `decision_seconds`: since the oldest input was recorded;
        None: nothing was decided on it."""
        self.inputs.inc(inputs)
        self.recorded.inc(events)
        if answers:
            failed, accepted = answers.count("internal"), answers.count("")
            self.accepted.inc(accepted)
            self.failed.inc(failed)
            self.refused.inc(len(answers) - accepted - failed)
        if decision_seconds is not None:
            self.decision_seconds.observe(max(0.0, decision_seconds))
