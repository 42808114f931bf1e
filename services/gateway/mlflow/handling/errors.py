"""Errors in the shape that MLflow's clients read: {"error_code", "message"}, with the sentence and the status of ours."""

from __future__ import annotations

import json
import zlib
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = "/mlflow/"
CODES = {
    "invalid": "INVALID_PARAMETER_VALUE",
    "unauthorized": "UNAUTHENTICATED",
    "expired": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "not_found": "RESOURCE_DOES_NOT_EXIST",
    "gone": "RESOURCE_DOES_NOT_EXIST",
    "method_not_allowed": "ENDPOINT_NOT_FOUND",
    "conflict": "INVALID_STATE",
    "exists": "RESOURCE_ALREADY_EXISTS",
    "too_large": "RESOURCE_LIMIT_EXCEEDED",
    "too_many": "REQUEST_LIMIT_EXCEEDED",
    "too_slow": "ABORTED",
    "unavailable": "TEMPORARILY_UNAVAILABLE",
    "store_away": "TEMPORARILY_UNAVAILABLE",
    "no_space": "RESOURCE_EXHAUSTED",
}
OF_A_BODY = (b"content-length", b"content-type", b"content-encoding")
GZIP_BITS, GZIP_MARK = 31, b"\x1f\x8b"
ERROR_BYTES_MAX = 1 << 20
NO_ROUTE = "There is nothing at this address."


class MlflowErrors:
    """Outermost: also what the gate refuses is told in this shape."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            send = _Translating(send, scope)
        await self._app(scope, receive, send)


class _Translating:
    def __init__(self, send: Send, scope: Scope) -> None:
        self._send, self._scope = send, scope
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
            return
        if self._start is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False) and len(self._body) < ERROR_BYTES_MAX:
            return
        body = json.dumps(self._told()).encode()
        headers = [item for item in self._start["headers"] if item[0] not in OF_A_BODY]
        headers += [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _told(self) -> dict[str, Any]:
        try:
            body = zlib.decompress(self._body, GZIP_BITS) if self._body.startswith(GZIP_MARK) else self._body
            error = json.loads(body)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError, zlib.error):
            return {"error_code": "INTERNAL_ERROR", "message": "Tenuto failed on this; the gateway's log says more."}
        if code == "method_not_allowed" or message == NO_ROUTE:
            path = self._scope["path"].removeprefix("/mlflow")[:200]
            message = f"{self._scope['method']} {path} is not part of what Tenuto answers of MLflow's protocol (docs/mlflow.md)."
            return {"error_code": "ENDPOINT_NOT_FOUND", "message": message}
        return {"error_code": CODES.get(code, "INTERNAL_ERROR"), "message": message}
