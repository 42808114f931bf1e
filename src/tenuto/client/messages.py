"""Requests and answers of the REST door, apart from their transport: both transports send and read these."""

from __future__ import annotations

import json
import re
import secrets
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from tenuto.client.errors import Away, ClientError, Failed, Refused
from tenuto.client.target import Target

API = "/api/v1"
TIMEOUT_SECONDS = 60.0
"""Longest silence of a connection: an answer of the door takes less, or sends some bytes on the way."""
AWAY_STATUSES = frozenset({429, 502, 503, 504})
MORE_HEADER = "Tenuto-More"
"""Header of a page that was full, by number or by bytes."""
LINK_HEADER = "Link"
AT_LEAST_HEADER = "Tenuto-At-Least"
"""Position of the log that an answer must include. Without it an answer may be a moment older than the newest event."""
AFTER_HEADER = "Retry-After"
TOLD_401 = (b'"expired"', b'"wrong_password"', b'"sso_refused"')
"""Codes of a refusal whose sentence says more than that the token is wrong."""
CHUNK_BYTES = 1 << 20
IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True)
class Upload:
    """A body that is read while it is sent, from its beginning on each time."""

    chunks: Callable[[], Iterator[bytes]]
    size_bytes: int


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Path below /api/v1."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """None: not given. A list: given several times."""
    body: bytes | Upload = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def repeatable(self) -> bool:
        """True if sending it twice has the same effect as sending it once."""
        return self.method in IDEMPOTENT or "Idempotency-Key" in self.headers

    @property
    def address(self) -> str:
        """Path and query."""
        used = {name: value for name, value in self.query.items() if value is not None}
        return API + self.path + (f"?{urllib.parse.urlencode(used, doseq=True)}" if used else "")

    def headers_for(self, token: str) -> dict[str, str]:
        sent = {"Authorization": f"Bearer {token}", "Connection": "close", **self.headers}
        if self.method != "GET":
            size_bytes = self.body.size_bytes if isinstance(self.body, Upload) else len(self.body)
            sent["Content-Length"] = str(size_bytes)
        return sent


class AnswerPage(NamedTuple):
    body: bytes
    more: bool
    """True if there is more behind it."""
    onward: str
    """Query of the next page; empty if the answer names none."""


_NEXT = re.compile(r'<\?([^>]*)>; rel="next"')


def onward(link: str | None) -> str:
    """Query of the next page, from the header `Link`."""
    found = _NEXT.search(link or "")
    return found[1] if found else ""


def new_key() -> str:
    """New Idempotency-Key: with it a submission can be sent again if its answer was lost."""
    return secrets.token_hex(16)


def with_json(method: str, path: str, body: Any, query: Mapping[str, Any], key: str = "") -> Request:
    encoded = b"" if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return Request(method, path, query, encoded, headers)


def submission(config: bytes, context: IO[bytes], context_bytes: int, origin: bytes, key: str) -> Request:
    """Request of a submission. `context`: the packed model directory, from its present position on."""
    boundary = f"tenuto-{secrets.token_hex(16)}"
    part = f"--{boundary}\r\nContent-Disposition: form-data; name="
    head = (
        f'{part}"config"\r\n\r\n'.encode()
        + config
        + (f'\r\n{part}"origin"\r\n\r\n'.encode() + origin if origin else b"")
        + f'\r\n{part}"context"; filename="context.tar.gz"\r\nContent-Type: application/gzip\r\n\r\n'.encode()
    )
    tail = f"\r\n--{boundary}--\r\n".encode()
    begin = context.tell()

    def chunks() -> Iterator[bytes]:
        context.seek(begin)
        yield head
        while chunk := context.read(CHUNK_BYTES):
            yield chunk
        yield tail

    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"} | ({"Idempotency-Key": key} if key else {})
    return Request("POST", "/experiments", {}, Upload(chunks, len(head) + context_bytes + len(tail)), headers)


def stream(after: int, experiment: int | None, timeout_seconds: float) -> Request:
    """Request for live events behind a position."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return Request("GET", "/events/stream", {"after": after, "experiment": experiment}, b"", headers, timeout_seconds)


class Messages:
    """Server-sent events, assembled from the lines in which they arrive."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def take(self, line: bytes) -> tuple[dict[str, Any], bytes] | None:
        """Event, decoded and as the bytes that were sent, once its last line has come."""
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            body = b"\n".join(self._data)
            self._data = []
            event = json.loads(body)
            if "position" in event:
                return event, body
        return None


def refusal(target: Target, status: int, reason: str, retry_after: str | None, body: bytes) -> ClientError:
    """Error for an answer of 400 or more."""
    if status == 401 and not any(word in body for word in TOLD_401):
        error: ClientError = Refused(
            f"Your session at {target.url} has ended: sign in again with `tenuto login`, or leave it with `tenuto logout`."
            if target.signed_in
            else f"The cluster at {target.url} refused the token from {target.token_source}: give the one that its "
            "first start wrote to rest.token in its data directory, with TENUTO_TOKEN or TENUTO_TOKEN_FILE."
        )
        told: dict[str, Any] = {"code": "unauthorized"}
    else:
        kind = Away if status in AWAY_STATUSES else Refused if status < 500 else Failed
        try:
            told = json.loads(body)["error"]
            path, message = told.get("path"), str(told["message"])
            error = kind(f"{path}: {message}" if path and not message.startswith(path) else message)
        except (ValueError, KeyError, TypeError, AttributeError):
            told = {}
            error = kind(f"The cluster at {target.url} answered {status} {reason}.".replace(" .", "."))
    if isinstance(error, Refused):
        error.status, error.word, error.path = status, str(told.get("code", "")), str(told.get("path") or "")
        error.problems = told.get("problems") or ()
    if isinstance(error, Away):
        error.retry_after_seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return error


def split_array(body: bytes) -> list[bytes]:
    """Elements of a JSON array of objects, byte for byte: the hash chain and replay are over exact payload bytes."""
    text = body.decode()
    decoder = json.JSONDecoder()
    items: list[bytes] = []
    at = text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \r\n\t,":
            at += 1
        if at >= len(text) or text[at] == "]":
            return items
        _, end = decoder.raw_decode(text, at)
        items.append(text[at:end].encode())
        at = end


def items(value: Any) -> list[dict[str, Any]]:
    """List, whether the server sent it bare or as the `items` of a page. Raises ClientError."""
    if isinstance(value, dict):
        value = value.get("items")
    if not isinstance(value, list):
        raise ClientError("The cluster's answer cannot be read: is it of another version? `tenuto status` shows it.")
    return value
