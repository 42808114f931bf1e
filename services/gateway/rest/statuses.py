"""Statuses of each operation for the OpenAPI document: all possible ones, each with the body of an error.

500 is not among them: it is a defect of ours.
"""

from __future__ import annotations

from typing import Any

from tenuto.services.gateway.policies.permissions import ROUTES, Right
from tenuto.services.gateway.rest.problems import MEDIA_TYPE

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


def declare(document: dict[str, Any]) -> None:
    """In place of what FastAPI knows: its own 422, which this door never gives, and nothing of the others."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}
            for status in _statuses(method.upper(), path):
                schema = {"$ref": "#/components/schemas/ErrorView"}
                answers[str(status)] = {"description": MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
            operation["responses"] = answers
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _statuses(method: str, path: str) -> list[int]:
    right = ROUTES[f"{method} {path}"]
    found = {400, 503} if right is Right.OPEN else {400, 401, 429, 503}
    if path.endswith("/login"):
        found |= {401, 429}
    if right in (Right.OWNER, Right.SELF, Right.ADMIN):
        found.add(403)
    if "{" in path or path.endswith(_COMPARES):
        found.add(404)
    if method != "GET":
        found |= {403, 404, 408, 409, 413}  # 403: a browser's session, and a page of another site
    if path.endswith("/pareto") or path.endswith(_COMPARES):
        found.add(409)
    if path.endswith(("/download", "/verify", "/undelete")) or (method == "DELETE" and path.endswith("/{experiment_id}")):
        found.add(410)
    if method == "POST" and path.endswith(_READS_UPLOADS):
        found.add(507)
    return sorted(found)
