"""Every error leaves the door as problem details (`problems.py`), with one clear sentence."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tenuto.kernel.core import Refused
from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.secrets import SecretKeyError
from tenuto.kernel.storage.store import StoreError
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.text import visible, visible_lines
from tenuto.services.gateway.http.problems import MEDIA_TYPE, STATUS, ProblemView, problem
from tenuto.services.gateway.http.refusals import RequestRefused
from tenuto.services.gateway.http.shared_sentences import no_such

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 2
PATTERNS = {
    "trial_id": "must be the id of a trial, such as 3-7 for the seventh of experiment 3",
    "name": "must be 1 to 63 small letters, digits, _, . or -, and begin with a letter",
    "pool": "must be 1 to 63 letters, digits, _ or -",
}
"""Words shown in place of a regular expression, which would tell people little."""
AWAY = "The database cannot be reached right now; try again in a few seconds. Training goes on meanwhile."

FILLING = (
    "What this asks for is not there yet: lists and pages are being filled again from the log ({0} of {1} events). "
    "Ask again in a few seconds; training goes on meanwhile."
)


class DoorError(Exception):
    """An error with its code and one sentence for the user."""

    def __init__(self, code: str, message: str, path: str | None = None, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.path, self.headers = code, path, headers


def error_response(
    code: str,
    message: str,
    path: str | None = None,
    problems: Sequence[ProblemView] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer to an error. Parts of the request are repeated with escapes for unprintable characters."""
    shown = [
        ProblemView(path=visible(item.path), message=visible_lines(item.message), value=visible(item.value)) for item in problems
    ]
    where = None if path is None else visible(path)
    body = problem(code, visible_lines(message), where, shown)
    headers = ({"Retry-After": str(RETRY_AFTER_SECONDS)} if code in ("unavailable", "too_many") else {}) | dict(headers or {})
    if code == "too_slow":
        headers["Connection"] = "close"  # the rest of the body may come at any time, or never
    if code in ("unauthorized", "expired"):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(body.to_json(), body.status, headers, media_type=MEDIA_TYPE)


def not_found(what: str) -> DoorError:
    return DoorError("not_found", no_such(what))


def _not_filled(request: Request) -> Response | None:
    """Answer in place of 404 while the views are filled again: a missing thing may come with the next events."""
    filling = request.app.state.filling()
    if filling is None:
        return None
    return error_response("unavailable", FILLING.format(*filling))


async def _door_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DoorError)
    if error.code == "not_found" and (answer := _not_filled(request)):
        return answer
    return error_response(error.code, str(error), error.path, headers=error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, (Refused, RequestRefused))
    if error.code == "not_found" and (answer := _not_filled(request)):
        return answer
    return error_response(error.code, str(error))


async def _config(_: Request, error: Exception) -> Response:
    assert isinstance(error, ConfigError)
    problems = [ProblemView(path=item.path, message=item.message, value=item.value) for item in error.problems]
    return error_response("invalid", str(error), error.problems[0].path, problems)


async def _request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"] if part not in ("query", "path", "body"))
        message = item["msg"].replace("Input should be", "must be")
        if item["type"] == "string_pattern_mismatch":
            message = PATTERNS.get(where, message)
        value = "" if _secret(where) else str(item.get("input", ""))[:80]
        problems.append(ProblemView(path=where, message=message, value=value))
    first = problems[0]
    where = f"{first.path}: " if first.path else "The body: "
    found = "" if _secret(first.path) else f" (found {first.value})"
    return error_response("invalid", f"{where}{first.message}{found}.", first.path, problems)


def _secret(where: str) -> bool:
    """True if the value sent there may be secret. It is not repeated then: it could end in a log."""
    return where.partition(".")[0] == "target" or where in ("value", "secret", "password", "new_password")


async def _store(_: Request, error: Exception) -> Response:
    return error_response("store_away", f"The checkpoint's store cannot be read: {str(error).rstrip('.')}.")


DATABASE_ERRORS: tuple[type[Exception], ...] = (
    LogUnavailable,
    VersionConflict,
    ConnectionError,
    *(kind for kind in DATABASE_AWAY if kind is not OSError),  # which may be a file's, too
)


def unavailable(error: Exception) -> Response:
    """The answer to one of DATABASE_ERRORS."""
    logger.warning("answered 503: %s", str(error) or type(error).__name__)
    return error_response("unavailable", AWAY)


async def _unavailable(_: Request, error: Exception) -> Response:
    return unavailable(error)


async def _no_secret_key(_: Request, error: Exception) -> Response:
    logger.error("a secret cannot be stored: %s", error)
    message = "The cluster's key of the users' secrets cannot be used; the gateway's log tells its operator why."
    return error_response("unavailable", message)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = next((code for code, status in STATUS.items() if status == error.status_code), "invalid")
    message = "There is nothing at this address." if error.status_code == 404 else f"{error.detail}."
    return error_response(code, message, headers=error.headers)


async def _client_gone(_: Request, error: Exception) -> Response:
    """Answer to a client that disconnected. It is not logged: nothing failed here, and a stranger could fill the log with it."""
    return error_response("invalid", "The client went away before its request was whole.")


async def _internal(_: Request, error: Exception) -> Response:
    logger.error("a request failed", exc_info=error)
    return error_response("internal", f"Tenuto failed on this ({type(error).__name__}); the gateway's log says more.")


def install(app: FastAPI) -> None:
    for kind in DATABASE_ERRORS:
        app.add_exception_handler(kind, _unavailable)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(StoreError, _store)
    app.add_exception_handler(SecretKeyError, _no_secret_key)
    app.add_exception_handler(DoorError, _door_error)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestRefused, _refused)
    app.add_exception_handler(ConfigError, _config)
    app.add_exception_handler(RequestValidationError, _request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _internal)
