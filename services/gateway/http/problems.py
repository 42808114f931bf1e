"""Body of the door's errors: problem details by RFC 9457, with our sentence as `detail`."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from tenuto.schemas.base import Model

MEDIA_TYPE = "application/problem+json"
STATUS = {
    "invalid": 400,
    "unauthorized": 401,
    "expired": 401,
    "wrong_password": 401,
    "sso_refused": 401,
    "password_change": 403,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "conflict": 409,
    "exists": 409,
    "gone": 410,
    "too_large": 413,
    "too_many": 429,
    "internal": 500,
    "unavailable": 503,
    "no_space": 507,
    "store_away": 503,
}
"""Code of an error -> its status."""


class ProblemView(Model):
    path: str
    message: str
    value: str = ""


class ErrorBody(Model):
    code: str
    """Word for programs: invalid, unauthorized, expired, wrong_password, sso_refused, password_change, forbidden, not_found,
    method_not_allowed, too_slow, conflict, exists, gone, too_large, too_many, internal, unavailable, no_space or
    store_away."""
    message: str
    """One sentence for people: what, why, what to do."""
    path: str | None = None
    """Place in the configuration or the request, such as `searcher.max_length`."""
    problems: tuple[ProblemView, ...] = ()
    """All faults of the request; `path` is that of the first."""


class ErrorView(Model):
    type: str = "about:blank"
    """URI of the kind of problem. `about:blank`: the status says it, and `error.code` more exactly."""
    title: str
    """Name of the status."""
    status: int
    detail: str
    """The same sentence as `error.message`."""
    error: ErrorBody


def problem(code: str, message: str, path: str | None = None, problems: Sequence[ProblemView] = ()) -> ErrorView:
    status = STATUS.get(code, 500)
    body = ErrorBody(code=code, message=message, path=path, problems=tuple(problems))
    return ErrorView(title=HTTPStatus(status).phrase, status=status, detail=message, error=body)
