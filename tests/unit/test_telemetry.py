"""Traces: off by default, and one trace from a command to the events that follow from it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenuto.kernel import telemetry
from tenuto.kernel.eventlog import Append
from tenuto.kernel.feed import LogFeed
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.tasks import stop_task
from tests.support.manual_clock import ManualClock
from tests.support.memory_log import MemoryEventLog
from tests.support.tally_core import TallyCore, priority_changed

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.use_provider(provider)
    yield exporter
    telemetry.use_provider(None)


def test_off_by_default_and_without_the_sdk() -> None:
    code = (
        "import sys; from tenuto.kernel import telemetry; from tenuto.kernel.settings import Settings\n"
        "telemetry.configure('x', Settings())\n"
        f"with telemetry.span('work', parent={PARENT!r}) as trace: assert trace == {PARENT!r}\n"
        "assert not telemetry.enabled(); assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_span_goes_on_with_its_parent_and_links_the_others(spans: InMemorySpanExporter) -> None:
    other = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"
    with telemetry.span("work", parent=PARENT, links=[other, other, "nonsense", "00-xyz-1-1"], position=7) as trace:
        assert trace.split("-")[1] == "a" * 32
    [span] = spans.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:x}" == "b" * 16
    assert [f"{link.context.trace_id:x}" for link in span.links] == ["c" * 32]
    assert span.attributes is not None
    assert span.attributes["tenuto.position"] == 7


async def test_the_trace_of_an_input_is_linked_by_the_commit_that_answers_it(spans: InMemorySpanExporter) -> None:
    log = MemoryEventLog()
    loop = ServiceLoop(TallyCore(), log, LogFeed(log), ManualClock(), Settings())
    task = asyncio.create_task(loop.run())
    await log.append(Append([priority_changed(UUID(int=1), 1, 5, trace=PARENT)]))
    await loop.wait_position(1)
    await stop_task(task)
    assert (await log.read(1, 1))[0].trace == PARENT
    commit = next(span for span in spans.get_finished_spans() if span.name == "commit")
    assert [f"{link.context.trace_id:x}" for link in commit.links] == ["a" * 32]


def test_an_unknown_exporter_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="TENUTO_TRACE_EXPORTER is 'carrier-pigeon'"):
        telemetry.configure("x", Settings(trace_exporter="carrier-pigeon"))
