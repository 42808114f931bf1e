"""The command line's REST client: the standard library only, because a command should start in a fraction of a second."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import ssl
import sys
import time
import urllib.parse
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tenuto.cli.errors import CliError
from tenuto.cli.say import say

API = "/api/v1"
TIMEOUT_SECONDS = 60.0
STREAM_TIMEOUT_SECONDS = 60.0
"""A live stream sends a comment more often than this; silence means that the connection is dead."""
RECONNECT_SECONDS = 1.0
OUTAGE_SECONDS_MAX = 600.0
"""So long without the cluster, then a command that waits gives up: the database restarts in seconds, a machine in minutes."""
AWAY_STATUSES = frozenset({429, 502, 503, 504})
PAGE_EVENTS = 5_000
MORE_HEADER = "Tenuto-More"
"""Of a page that was full, by number or by bytes."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Target:
    """Which cluster a command talks to."""

    url: str
    token: str
    token_source: str

    @classmethod
    def find(cls, data_dir: str | None, url: str | None) -> Target:
        """`url`, else TENUTO_URL with TENUTO_TOKEN or TENUTO_TOKEN_FILE, else the laptop cluster of the data directory."""
        url = url or os.environ.get("TENUTO_URL")
        token, source = os.environ.get("TENUTO_TOKEN", ""), "TENUTO_TOKEN"
        token_file = os.environ.get("TENUTO_TOKEN_FILE", "")
        if not url or not (token or token_file):
            from tenuto.embedded.files import Layout, read_state

            layout = Layout.of(data_dir)
            state = read_state(layout)
            if not url and (state is None or not layout.token.exists()):
                raise CliError(
                    f"No cluster is up in {layout.root}: start one with `tenuto up`, or name one with --url or TENUTO_URL."
                )
            url = url or (state.url if state else "")
            token_file = token_file or str(layout.token)
        if not token:
            source = token_file
            try:
                token = Path(token_file).read_text().strip()
            except OSError as error:
                raise CliError(
                    f"The token cannot be read from {token_file}: {error.strerror}; set TENUTO_TOKEN or TENUTO_TOKEN_FILE."
                ) from error
        return cls(url.rstrip("/"), token, source)


class Refused(CliError):
    """The cluster answered, and the same request will not be answered otherwise: trying again is of no use."""

    word = ""
    """The cluster's own word for it, such as conflict; empty where it gave none."""


class Away(CliError):
    """The cluster does not answer, or says that it cannot now: the same request may be answered later."""


class Outage:
    """A time without the cluster, for commands that wait: they say so once, and give up after OUTAGE_SECONDS_MAX."""

    def __init__(self) -> None:
        self._since: float | None = None

    def wait(self, error: CliError) -> None:
        """Raises `error` where it has lasted too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            say(f"{error} This command waits, for at most {OUTAGE_SECONDS_MAX / 60:.0f} minutes.", file=sys.stderr, flush=True)
        elif now - self._since > OUTAGE_SECONDS_MAX:
            raise error
        time.sleep(RECONNECT_SECONDS)

    def over(self) -> None:
        if self._since is not None:
            say("The cluster answers again.", file=sys.stderr, flush=True)
        self._since = None

    @property
    def lasts(self) -> bool:
        return self._since is not None


class Client:
    """Raises CliError, with the server's own sentence where there is one.

    Each request has a connection of its own, closed when its answer was read: a command makes a few requests, and a kept
    connection that the server has closed meanwhile would leave open whether a request that failed on it was carried out.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        parts = urllib.parse.urlsplit(target.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CliError(f"{target.url!r} is not the URL of a cluster: it must look like http://127.0.0.1:8080.")
        self._secure = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/") + API

    def get(self, path: str, **query: Any) -> Any:
        with self._request("GET", path, query=query) as response:
            return json.loads(response.read())

    def wait_get(self, path: str) -> Any:
        """As `get`; waits through an outage of the cluster's database, and of all once the cluster has answered."""
        outage = Outage()
        while True:
            try:
                answer = self.get(path)
            except Refused:
                raise
            except CliError as error:
                if not (isinstance(error, Away) or outage.lasts):
                    raise
                outage.wait(error)
            else:
                outage.over()
                return answer

    def post(self, path: str, body: Any = None) -> Any:
        return self._json("POST", path, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._json("PATCH", path, body)

    def put(self, path: str, body: Any) -> Any:
        return self._json("PUT", path, body)

    def delete(self, path: str) -> Any:
        return self._json("DELETE", path, None)

    def submit(self, config: bytes, context: IO[bytes], context_bytes: int, origin: bytes = b"") -> Any:
        boundary = f"tenuto-{secrets.token_hex(16)}"
        part = f"--{boundary}\r\nContent-Disposition: form-data; name="
        head = (
            f'{part}"config"\r\n\r\n'.encode()
            + config
            + (f'\r\n{part}"origin"\r\n\r\n'.encode() + origin if origin else b"")
            + f'\r\n{part}"context"; filename="context.tar.gz"\r\nContent-Type: application/gzip\r\n\r\n'.encode()
        )
        tail = f"\r\n--{boundary}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            while chunk := context.read(CHUNK_BYTES):
                yield chunk
            yield tail

        headers = {
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(head) + context_bytes + len(tail)),
        }
        with self._request("POST", "/experiments", body=body(), headers=headers) as response:
            return json.loads(response.read())

    def download(self, path: str) -> AbstractContextManager[http.client.HTTPResponse]:
        """Use with `with`: the answer is read from the connection as it comes."""
        return self._request("GET", path)

    def events(self, after: int = 0, upto: int | None = None, experiment: int | None = None) -> Iterator[bytes]:
        """Events as the gateway tells them, up to `upto` or the present head: `data` is byte for byte what was recorded."""
        while True:
            query = {"after": after, "limit": PAGE_EVENTS, "upto": upto, "experiment": experiment}
            with self._request("GET", "/events", query=query) as response:
                page = split_array(response.read())
                full = response.getheader(MORE_HEADER) == "true"
            if not page:
                return
            yield from page
            after = json.loads(page[-1])["position"]
            if not full and (upto is None or after >= upto):
                return

    def follow(self, after: int, experiment: int | None = None) -> Generator[dict[str, Any]]:
        """Events from `after` on, for ever; a lost connection is made again from the last position."""
        for body in self.follow_bodies(after, experiment):
            yield json.loads(body)

    def follow_bodies(self, after: int, experiment: int | None = None) -> Generator[bytes]:
        """As `follow`: the bytes as they were told."""
        outage = Outage()
        while True:
            try:
                for position, body in self._stream(after, experiment, outage.over):
                    after = position
                    yield body
                time.sleep(RECONNECT_SECONDS)
            except Refused:
                raise
            except CliError as error:
                outage.wait(error)
            except (OSError, http.client.HTTPException) as error:
                outage.wait(CliError(f"The connection to {self._target.url} was lost ({error})."))

    def _stream(self, after: int, experiment: int | None, heard: Callable[[], None]) -> Iterator[tuple[int, bytes]]:
        data: list[bytes] = []
        with self._request(
            "GET",
            "/events/stream",
            query={"after": after, "experiment": experiment},
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(after)},
            timeout_seconds=STREAM_TIMEOUT_SECONDS,
        ) as response:
            for raw in response:
                heard()
                line = raw.rstrip(b"\r\n")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                elif not line and data:
                    body = b"\n".join(data)
                    data = []
                    event = json.loads(body)
                    if "position" in event:
                        yield event["position"], body

    def _json(self, method: str, path: str, body: Any) -> Any:
        encoded = b"" if body is None else json.dumps(body).encode()
        with self._request(method, path, body=encoded, headers={"Content-Type": "application/json"}) as response:
            answer = response.read()
        return json.loads(answer) if answer else None

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Iterator[http.client.HTTPResponse]:
        used = {name: value for name, value in (query or {}).items() if value is not None}
        address = self._prefix + path + (f"?{urllib.parse.urlencode(used)}" if used else "")
        sent = {"Authorization": f"Bearer {self._target.token}", "Connection": "close", **(headers or {})}
        with contextlib.closing(self._connect(timeout_seconds)) as connection:
            # A server that refuses before it has read everything closes the pipe; its answer says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, address, body=body, headers=sent)
            try:
                with connection.getresponse() as response:
                    if response.status >= 400:
                        raise self._refusal(response)
                    yield response
            except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
                why = "it was silent for too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
                raise CliError(f"The cluster at {self._target.url} broke off the connection ({why}): try again.") from error

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            why = (
                "it does not answer"
                if isinstance(error, (ConnectionRefusedError, socket.timeout))
                else "it does not speak TLS there; is its address http://?"
                if isinstance(error, ssl.SSLError)
                else error.strerror or str(error)
            )
            raise CliError(
                f"The cluster at {self._target.url} cannot be reached: {why}. `tenuto up` starts the one on this machine."
            ) from error
        return connection

    def _refusal(self, response: http.client.HTTPResponse) -> CliError:
        body = response.read()
        kind = Away if response.status in AWAY_STATUSES else Refused if response.status < 500 else CliError
        if response.status == 401 and b'"expired"' not in body:
            return Refused(
                f"The cluster at {self._target.url} refused the token from {self._target.token_source}: give the one that its "
                "first start wrote to rest.token in its data directory, with TENUTO_TOKEN or TENUTO_TOKEN_FILE."
            )
        try:
            error = json.loads(body)["error"]
            path = error.get("path")
            message = str(error["message"])
            refusal = kind(f"{path}: {message}" if path and not message.startswith(path) else message)
            if isinstance(refusal, Refused):
                refusal.word = str(error["code"])
            return refusal
        except (ValueError, KeyError, TypeError):
            return kind(f"The cluster at {self._target.url} answered {response.status} {response.reason}.")


def split_array(body: bytes) -> list[bytes]:
    """The elements of a JSON array of objects, byte for byte: the hash chain and replay are over exact payload bytes."""
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
