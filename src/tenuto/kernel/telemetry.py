"""Traces that follow a trial across services. Off by default: then nothing of OpenTelemetry's SDK is even imported.

The trace context travels as a W3C traceparent: in message headers, in commands, and in the log row (`Event.trace`), from which
the service that reacts to an event continues it. Spans are made per batch, with links to the traces in the batch: one span per
message would cost more than the work. Span names are templates, never ids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.kernel.settings import Settings, SettingsError

LINKS_MAX = 64
"""Most links per span: a batch of 500 inputs of one experiment mostly shares a few traces."""

_provider: Any = None


def configure(service_name: str, settings: Settings) -> None:
    """Sets up tracing. Raises SettingsError if the exporter is unknown or not installed."""
    global _provider
    if settings.trace_exporter == "none":
        return
    from opentelemetry import trace  # type: ignore[import-not-found,attr-defined,unused-ignore]
    from opentelemetry.sdk.resources import Resource  # type: ignore[import-not-found,attr-defined,unused-ignore]
    from opentelemetry.sdk.trace import TracerProvider  # type: ignore[import-not-found,attr-defined,unused-ignore]
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # type: ignore[import-not-found,attr-defined,unused-ignore]

    _provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    _provider.add_span_processor(BatchSpanProcessor(_exporter(settings.trace_exporter)))
    trace.set_tracer_provider(_provider)


def use_provider(provider: Any) -> None:
    """Sets the provider. Tests pass one with an exporter in memory; None turns tracing off."""
    global _provider
    _provider = provider


def _exporter(name: str) -> Any:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # type: ignore[import-not-found,attr-defined,unused-ignore]

        return ConsoleSpanExporter()
    if name == "otlp":
        try:
            exporter = needed("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
        except NotInstalled as error:
            raise SettingsError(f"TENUTO_TRACE_EXPORTER is 'otlp', but {error}.") from None
        return exporter.OTLPSpanExporter()
    raise SettingsError(f"TENUTO_TRACE_EXPORTER is {name!r}, but must be none, console or otlp.")


def shutdown() -> None:
    """Sends the spans that are still waiting."""
    if _provider is not None:
        _provider.shutdown()


def enabled() -> bool:
    return _provider is not None


@contextlib.contextmanager
def span(name: str, *, parent: str = "", links: Iterable[str] = (), **attributes: str | int | float | bool) -> Iterator[str]:
    """A span around a piece of work; yields its traceparent, or `parent` if tracing is off.

    `parent` and `links` are traceparents; unreadable ones are left out.
    """
    if _provider is None:
        yield parent
        return
    from opentelemetry import trace  # type: ignore[import-not-found,attr-defined,unused-ignore]

    contexts = [context for context in map(_span_context, dict.fromkeys(links)) if context is not None]
    parent_context = _span_context(parent)
    around = None if parent_context is None else trace.set_span_in_context(trace.NonRecordingSpan(parent_context))
    with _provider.get_tracer("tenuto").start_as_current_span(
        name,
        context=around,
        links=[trace.Link(context) for context in contexts[:LINKS_MAX]],
        attributes={f"tenuto.{key}": value for key, value in attributes.items()},
    ) as current:
        yield _traceparent(current.get_span_context())


def _traceparent(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _span_context(traceparent: str) -> Any:
    from opentelemetry import trace  # type: ignore[import-not-found,attr-defined,unused-ignore]

    parts = traceparent.split("-")
    if len(parts) != 4:
        return None
    try:
        context = trace.SpanContext(
            trace_id=int(parts[1], 16), span_id=int(parts[2], 16), is_remote=True, trace_flags=trace.TraceFlags(int(parts[3], 16))
        )
    except ValueError:
        return None
    return context if context.is_valid else None
