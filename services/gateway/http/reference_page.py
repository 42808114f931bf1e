"""The OpenAPI document as a page for people: plain HTML, made when it is asked for, with no script and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; } body { font: 16px/1.5 system-ui; max-width: 60rem; margin: auto; padding: 1rem; }
summary { cursor: pointer; padding: .3rem 0; } details details { margin-left: 1.5rem; } table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .15rem 1rem .15rem 0; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; } .method { display: inline-block; min-width: 4.5rem; font-weight: bold; } .about { opacity: .75; }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
METHODS = ("get", "put", "post", "patch", "delete")


def page(document: Mapping[str, Any]) -> str:
    return _page(json.dumps(document))


@lru_cache(maxsize=1)  # the document never changes while the gateway runs
def _page(text: str) -> str:
    document = json.loads(text)
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                tag = (operations[method].get("tags") or ["other"])[0]
                tags.setdefault(tag, []).append(_operation(method, path, operations[method]))
    title = escape(f"{document['info']['title']} REST {document['info']['version']}")
    sections = "".join(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>{"".join(items)}' for tag, items in tags.items())
    links = " · ".join(f'<a href="#{escape(tag)}">{escape(tag)}</a>' for tag in tags)
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{escape(document['info'].get('description', ''))}</p>"
        f'<p><a href="openapi.json">openapi.json</a> · {links} · <a href="#schemas">schemas</a></p>'
        f'{sections}<h2 id="schemas">schemas</h2>{schemas}</body></html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    about = operation.get("description") or operation.get("summary", "")
    parts = [f'<p class="about">{escape(about)}</p>']
    if parameters := operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(item['name'])}</code></td>"
            f"<td>{escape(item['in'])}{', required' if item.get('required') else ''}</td>"
            f"<td>{_type(item.get('schema', {}))}</td><td>{escape(item.get('description', ''))}</td></tr>"
            for item in parameters
        )
        parts.append(f"<h4>Parameters</h4><table>{rows}</table>")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<h4>Body</h4><p>{escape(kind)}: {_type(content.get('schema', {}))}</p>")
    rows = "".join(_answer(status, answer) for status, answer in sorted(operation["responses"].items()))
    parts.append(f"<h4>Answers</h4><table>{rows}</table>")
    shown = f'<span class="method">{method.upper()}</span><code>{escape(path)}</code>'
    return f"<details><summary>{shown}</summary>{''.join(parts)}</details>"


def _answer(status: str, answer: Mapping[str, Any]) -> str:
    kinds = "; ".join(f"{escape(kind)} {_type(content.get('schema', {}))}" for kind, content in answer.get("content", {}).items())
    headers = ", ".join(f"<code>{escape(name)}</code>" for name in answer.get("headers", {}))
    return f"<tr><th>{escape(status)}</th><td>{escape(answer['description'])}</td><td>{kinds}</td><td>{headers}</td></tr>"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(about)}</td><td>{escape(about.get('description', ''))}</td></tr>"
        for field, about in schema.get("properties", {}).items()
    )
    body = f"<table>{rows}</table>" if rows else f"<pre>{escape(json.dumps(schema, indent=1))}</pre>"
    about = escape(schema.get("description", ""))
    return f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary><p>{about}</p>{body}</details>'


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(item) for item in schema[key])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = ", ".join(f"{name} {schema[name]}" for name in ("minimum", "maximum", "maxLength") if name in schema)
    return escape(str(schema.get("type", "any")) + (f" ({bounds})" if bounds else ""))
