"""Statuses of each operation for the OpenAPI document: all possible ones, each with the body of an error.

500 is not among them: it is a defect of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.services.gateway.http.problems import MEDIA_TYPE
from tenuto.services.gateway.rights.permissions import PermissionRule, Where

MEANINGS = {
    400: "The request means nothing as it is: `error.path` names the field.",
    401: "There is no token, or it is wrong, has expired, or was taken away.",
    403: "The token's user may not do this.",
    404: "The item named in the request does not exist.",
    408: "The body came too slowly.",
    409: "The request conflicts with the present state, such as a change of an ended experiment.",
    410: "The item existed, and was deleted or damaged.",
    413: "The body, or what it unpacks to, is too large.",
    429: "Too many requests of this user, or too many of these at once; `Retry-After` says when to come again.",
    503: "The database, a store or a service is away; `Retry-After` says when to come again.",
    507: "The cluster's shared directory has no space left.",
}
_READS_UPLOADS = ("/experiments", "/reproduce", "/fork", "/continue")
_COMPARES = ("/diff", "/reproduction")
_AT_POSITIONS = ("/jobs", "/cluster")
_OF_FILES = ("/download", "/verify", "/undelete", "/files", "/files/content")
HEADERS = {
    "ETag": ("Of an answer that came in one piece: send it as `If-None-Match`, and 304 says that it is still so.", "string"),
    "Link": ('`<?...>; rel="next"`: the query of the next page, where this one is full.', "string"),
    "Tenuto-More": ("`true` where the page is full, by number or by bytes: there may be more behind it.", "string"),
    "Tenuto-Total": ("With `total=true`: the number on all pages.", "integer"),
    "Retry-After": ("Seconds until the same request may be answered.", "integer"),
    "WWW-Authenticate": ("`Bearer`.", "string"),
    "Connection": ("`close`.", "string"),
}
"""Name of a header -> its meaning and its type."""
OF_STATUS = {401: ("WWW-Authenticate",), 408: ("Connection",), 429: ("Retry-After",), 503: ("Retry-After",)}


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _declare_transfer(method: str, operation: Mapping[str, Any], answers: dict[str, Any]) -> None:
    """Declares the headers of answers with a body, and 304."""
    found = answers.get("200", {})
    if method != "get" or not found:
        return
    parameters = {item["name"] for item in operation.get("parameters", ())}
    named = ["ETag"] if "application/json" in found.get("content", {}) else []
    named += ["Link", "Tenuto-More"] if "limit" in parameters else []
    named += ["Tenuto-Total"] if "total" in parameters else []
    if named:
        found["headers"] = _headers(named)
    if "ETag" in named:
        answers["304"] = {"description": "Still as `If-None-Match` says.", "headers": _headers(("ETag",))}


def declare(document: dict[str, Any], rules: Mapping[str, PermissionRule]) -> None:
    """Declares the statuses of each route, in place of those that FastAPI knows: its own 422, which this door never gives, and
    none of the others. `rules`: rule of each route."""
    document["components"]["headers"] = {
        name: {"description": about, "schema": {"type": kind}} for name, (about, kind) in HEADERS.items()
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = {status: answer for status, answer in operation["responses"].items() if status[0] in "23"}
            for status in _statuses(method.upper(), path, rules[f"{method.upper()} {path}"]):
                schema = {"$ref": "#/components/schemas/ErrorView"}
                answers[str(status)] = {"description": MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
                if named := OF_STATUS.get(status):
                    answers[str(status)]["headers"] = _headers(named)
            _declare_transfer(method, operation, answers)
            operation["responses"] = answers
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _statuses(method: str, path: str, rule: PermissionRule) -> list[int]:
    found = {400, 503} if rule.where is Where.OPEN else {400, 401, 429, 503}
    if path.endswith(("/login", "/login/link", "/agents/join", "/agents/standing")):
        found |= {401, 429}
    if "/sso" in path:
        found |= {401, 403, 404, 409, 429}
    if rule.permission:  # at least a token may be limited to others
        found.add(403)
    if "{" in path or path.endswith((*_COMPARES, *_AT_POSITIONS)):
        found.add(404)
    if method != "GET":
        found |= {403, 404, 408, 409, 413}  # 403: a browser's session, and a page of another site
    if path.endswith(("/pareto", "/importance", "/what-if", *_COMPARES)):
        found.add(409)
    if path.endswith(_OF_FILES) or (method == "DELETE" and path.endswith("/{experiment_id}")):
        found.add(410)
    if method == "POST" and path.endswith(_READS_UPLOADS):
        found.add(507)
    return sorted(found)
