"""Requests to the stand-in of Compute Engine and its answers, read and written by the classes of Google's own client."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from tests.support.compute_engine_rules import PROJECT, Wrong


def read(form: Any, path: dict[str, str], query: Any) -> Any:
    """The request in the client's own class; parameters that it does not know are refused."""
    given: dict[str, Any] = {**path, **{key: value for key, value in query.items() if not key.startswith("$")}}
    if given["project"] != PROJECT:
        raise Wrong(403, "forbidden", f"Required 'compute.projects.get' permission for 'projects/{given['project']}'")
    given = {key: {"true": True, "false": False}.get(value, value) for key, value in given.items()}
    try:
        return form.from_json(json.dumps(given), ignore_unknown_fields=False)
    except Exception as error:
        raise Wrong(400, "invalidParameter", f"Invalid parameters: {error}") from None


def written(message: Any) -> web.Response:
    options = {"use_integers_for_enums": False, "always_print_fields_with_no_presence": False}
    text = type(message).to_json(message, indent=None, **options)  # json indents without its C code, ten times as slowly
    return web.Response(text=text, content_type="application/json")


def refused(error: Wrong) -> web.Response:
    entry = {"message": str(error), "domain": "global", "reason": error.reason}
    document = {"error": {"code": error.status, "message": str(error), "errors": [entry]}}
    return web.json_response(document, status=error.status)
