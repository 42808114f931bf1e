"""Shapes of the resources of Prometheus' operator, of the fields that the chart uses: by its published API reference
(monitoring.coreos.com/v1), because no registry has its definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

DURATION = {
    "type": "string",
    "pattern": "^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$",
}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _exactly(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


_METADATA = _exactly(("name", "namespace"), name={"type": "string"}, namespace={"type": "string"}, labels=TEXTS)
_ENDPOINT = _exactly(("port",), port={"type": "string"}, path={"type": "string"}, interval=DURATION, scrapeTimeout=DURATION)
_TEXT = {"type": "string"}
_RULE = _exactly(("expr",), alert=_TEXT, expr=_TEXT, labels=TEXTS, annotations=TEXTS, **{"for": DURATION})
_SPECS = {
    "ServiceMonitor": _exactly(
        ("endpoints", "selector"),
        namespaceSelector=_exactly((), any={"type": "boolean"}, matchNames={"type": "array", "items": {"type": "string"}}),
        selector=_exactly((), matchLabels=TEXTS),
        endpoints={"type": "array", "items": _ENDPOINT, "minItems": 1},
    ),
    "PrometheusRule": _exactly(
        ("groups",),
        groups={
            "type": "array",
            "items": _exactly(("name", "rules"), name={"type": "string"}, rules={"type": "array", "items": _RULE, "minItems": 1}),
        },
    ),
}
API_VERSION = "monitoring.coreos.com/v1"


def problems(body: Mapping[str, Any]) -> list[jsonschema.ValidationError]:
    kinds = {"apiVersion": {"const": API_VERSION}, "kind": {"type": "string"}}
    schema = _exactly(("apiVersion", "kind", "metadata", "spec"), metadata=_METADATA, spec=_SPECS[body["kind"]], **kinds)
    return list(jsonschema.Draft202012Validator(schema).iter_errors(body))
