"""Writes the generated reference documents: `make docs`. Tests compare the committed files with what this makes.

experiment-config.schema.json  JSON Schema of the experiment configuration (editors validate YAML with it)
events.schema.json             JSON Schema of every event's payload, by type
openapi.json                   OpenAPI document of the REST door
asyncapi.json                  AsyncAPI 3 document of every subject, made by FastStream from the same models
settings.md, experiment-config.md  every setting and every configuration field, with its default and meaning
python.md                      what users import, with its docstrings
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union
from uuid import UUID

import blocking_client
from config_page import config_page, config_schema, documented_fields, table
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from pydantic import create_model
from python_page import python_page

from tenuto.kernel.monitoring.catalogue import MEASURES
from tenuto.schemas import assignments, reports
from tenuto.schemas.base import Model
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.subjects import LANES
from tenuto.services.gateway.rest import openapi_document

SOURCE = Path(__file__).resolve().parents[1]
REFERENCE = SOURCE / "docs" / "reference"


class _Envelope(Model):
    """An event as it is published: see tenuto/schemas/envelope.py. `data` is the payload byte for byte."""

    id: UUID
    position: int
    stream: str
    version: int
    type: str
    schema_version: int
    time_us: int
    actor: str
    correlation_id: str
    causation_id: UUID | None
    seen_position: int
    trace: str


def event_message(model: type[EventData]) -> type[Model]:
    return create_model(f"{model.TYPE}Event", __base__=_Envelope, __doc__=model.__doc__, data=(model, ...))


def events_schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Payloads of all event types",
        "events": {
            name: {
                "owner": model.OWNER,
                "stream": f"{model.STREAM}/<key>",
                "version": model.VERSION,
                "payload": model.model_json_schema(),
            }
            for name, model in sorted(EVENT_MODELS.items())
        },
    }


RELIED_ON = """What subscribers may rely on.

Of `tenuto.log.>` (stream TENUTO_LOG), which is for programs of others, too:
- Each event comes at least once, and in the order of the log. Its stream sequence is its `position`; `Nats-Msg-Id` is its `id`.
  An event that comes again has the same position, so who notes the last position sees each once.
- A gap in the positions of what you filter by means nothing; a stream that begins behind your position means that older events
  are read from the gateway (`GET /api/v1/events`), which has all of them.
- The third part of a subject is the kind of the event's stream, the fourth its key, the last its type. Types and their members
  keep their meaning for ever. A change that old readers would misread gets a higher `schema_version`; new types and members may
  come in any release, so pass over what you do not know.
- `data` is byte for byte what is in the hash chain. Sentences are not recorded: make them of `reason`, or ask the gateway.
- Only the relay can publish there. Who may subscribe reads all of it; rights of users are judged by the gateway's stream of
  events (`GET /api/v1/events/stream`), and not here.

All other subjects (`tenuto.ingress.>`, `tenuto.committed.>`, `tenuto.agent.>`) are between the parts of one release, and may
change with any: subscribe to none of them."""


def asyncapi() -> dict[str, Any]:
    broker = NatsBroker()
    kinds: dict[str, list[type[EventData]]] = {}
    for _, model in sorted(EVENT_MODELS.items()):
        kinds.setdefault(model.STREAM, []).append(model)
    for kind, models in sorted(kinds.items()):
        messages = tuple(event_message(model) for model in models)
        broker.publisher(
            f"tenuto.log.{kind}.{{key}}.{{type}}",
            title=f"log.{kind}",
            description=f"Events that the {models[0].OWNER} records; published by the relay on stream TENUTO_LOG, stream "
            "sequence equal to log position.",
            schema=Union[messages],  # noqa: UP007 - built from a tuple
        )
    facts = Union[  # noqa: UP007
        reports.ValidationReport,
        reports.CheckpointReport,
        reports.ProgressReport,
        reports.EnvironmentReport,
        reports.DataReport,
    ]
    lanes: dict[str, Any] = {
        "tracker": facts,
        "overflow": facts,
        "launcher": Union[  # noqa: UP007
            reports.WorkersStartingReport, reports.WorkersStartedReport, reports.WorkersExitedReport
        ],
        "metrics": reports.MetricsReport,
        "logs": reports.LogsReport,
    }
    assert lanes.keys() == set(LANES)
    for lane, schema in lanes.items():
        broker.publisher(
            f"tenuto.ingress.{lane}.{{agent}}",
            title=f"ingress.{lane}",
            description="Reports of agents, in order, on stream TENUTO_INGRESS; identity in message headers.",
            schema=schema,
        )
        broker.publisher(
            f"tenuto.committed.{lane}.{{agent}}",
            title=f"committed.{lane}",
            description="Core NATS: the last report of the lane that is committed; the agent may drop it.",
            schema=reports.Committed,
        )
    broker.publisher(
        "tenuto.agent.heartbeat",
        title="agent.heartbeat",
        description="Core NATS request from an agent to the launcher; the reply is a HeartbeatReply.",
        schema=assignments.Heartbeat,
    )
    broker.publisher(
        "tenuto.agent.assign.{agent}",
        title="agent.assign",
        description="Core NATS request from the launcher to an agent; the reply is an AssignReply.",
        schema=assignments.Assignments,
    )
    spec = AsyncAPI(broker, title="Tenuto", version="1", schema_version="3.0.0").to_specification()
    document: dict[str, Any] = json.loads(spec.to_json())
    document["info"]["description"] = RELIED_ON
    return document


def settings_page() -> str:
    rows = [
        (f"TENUTO_{name.upper()}", kind, default, meaning)
        for name, kind, default, meaning in documented_fields(SOURCE / "src/tenuto/kernel/settings.py", "Settings")
    ]
    return "# Settings\n\nEvery process reads these environment variables.\n\n" + table(rows)


def metrics_page() -> str:
    labels = {item.name: ", ".join(f"`{label}`" for label in item.labels) for item in MEASURES}
    rows = "".join(
        f"| `{item.name}` | {item.kind} | {labels[item.name]} | {item.services} | {item.meaning} |\n" for item in MEASURES
    )
    return f"""# Metrics

Services tell Prometheus these metrics at `/metrics` of TENUTO_METRICS_LISTEN ([how to use them](../metrics.md)). A histogram has
the series `_bucket`, `_sum` and `_count`. Beside these there are those of the process (`process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds`, ...) and of Python (`python_gc_...`, `python_info`).

| metric | kind | labels | services | meaning |
|---|---|---|---|---|
{rows}"""


DOCUMENTS: dict[str, Callable[[], dict[str, Any] | str]] = {
    "experiment-config.schema.json": config_schema,
    "events.schema.json": events_schema,
    "asyncapi.json": asyncapi,
    "openapi.json": openapi_document,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "experiment-config.md": config_page,
    "python.md": python_page,
}


def render(document: dict[str, Any] | str) -> str:
    if isinstance(document, str):
        return document
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, make in DOCUMENTS.items():
        (REFERENCE / name).write_text(render(make()))
    blocking_client.main()


if __name__ == "__main__":
    main()
