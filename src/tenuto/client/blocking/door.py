# Made from aio/door.py by docs/blocking_client.py: change that one, then `make docs`.
"""Any route of the REST door, with retries of requests that may be sent again, and live events that resume where they broke."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import IO, Any, Self

from tenuto.client import messages, waiting
from tenuto.client.blocking.pauses import sleep
from tenuto.client.blocking.transport import Response, Transport
from tenuto.client.errors import Away, ClientError, Interrupted, Refused, TimedOut, Unreachable
from tenuto.client.messages import Messages, Page, Request, with_json
from tenuto.client.target import Target
from tenuto.client.waiting import Deadline, Notice, Outage, Tries

PAGE_EVENTS = 5_000


class Door:
    """Door to a cluster. Raises ClientError, with the server's own sentence if there is one."""

    def __init__(
        self, target: Target, *, patience_seconds: float = waiting.PATIENCE_SECONDS, notice: Notice = lambda text: None
    ) -> None:
        """Door to the cluster at `target`. `patience_seconds`: longest time for which a request that may be sent again is tried
        while the cluster is unreachable. `notice` is told when something that waits has lost the cluster, and when it is
        reachable again."""
        self.target = target
        self._transport = Transport(target)
        self._patience_seconds, self._notice = patience_seconds, notice
        self._answered = False

    @property
    def url(self) -> str:
        return self.target.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def get(self, path: str, **query: Any) -> Any:
        """Answer of a route. `path` is below /api/v1, such as /status; the same for the methods that follow."""
        return json.loads((self.fetch(path, **query))[0])

    def post(self, path: str, body: Any = None, *, key: str = "", **query: Any) -> Any:
        """Answer of a route. `key`: an Idempotency-Key, for the routes that know one; with it the request is tried again."""
        return self._json(with_json("POST", path, body, query, key))

    def patch(self, path: str, body: Any) -> Any:
        return self._json(with_json("PATCH", path, body, {}))

    def put(self, path: str, body: Any) -> Any:
        return self._json(with_json("PUT", path, body, {}))

    def delete(self, path: str) -> Any:
        return self._json(with_json("DELETE", path, None, {}))

    def fetch(self, path: str, **query: Any) -> tuple[bytes, bool]:
        """Body of an answer, and True if there is more behind it."""
        return (self._send(Request("GET", path, query)))[:2]

    def pages(self, path: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
        """Pages of a list, as long as an answer names a next one."""
        request = Request("GET", path, query)
        while True:
            page = self._send(request)
            yield messages.items(json.loads(page.body))
            if not page.onward:
                return
            request = Request("GET", f"{path}?{page.onward}")

    def wait_get(self, path: str) -> Any:
        """Same as `get`, but waits through an outage of the cluster's database, and through any outage once the cluster has
        answered."""
        outage = Outage(self._notice)
        while True:
            try:
                page = self._once(Request("GET", path))
            except ClientError as error:
                away = isinstance(error, Away) and not isinstance(error, (Unreachable, Interrupted))
                if not (away or outage.lasts):
                    raise
                sleep(outage.pause(error))
            else:
                outage.over()
                return json.loads(page.body)

    def submit(
        self, config: bytes, context: IO[bytes], context_bytes: int, origin: bytes = b"", *, key: str | None = None
    ) -> Any:
        """Submits a configuration. `context`: a packed model directory. `key`: the Idempotency-Key; None: a new one, so that the
        submission can be sent again if its answer was lost."""
        key = messages.new_key() if key is None else key
        return self._json(messages.submission(config, context, context_bytes, origin, key))

    def open(self, path: str) -> contextlib.AbstractContextManager[Response]:
        """Opens an answer that is read from the connection as it comes. Use with `with`."""
        return self._transport.open(Request("GET", path))

    def event_bodies(self, after: int = 0, upto: int | None = None, experiment: int | None = None) -> Iterator[bytes]:
        """Events as the gateway sends them, up to `upto` or the present head: `data` is byte for byte as recorded."""
        while True:
            body, full = self.fetch("/events", after=after, limit=PAGE_EVENTS, upto=upto, experiment=experiment)
            page = messages.split_array(body)
            if not page:
                return
            yield from page
            after = json.loads(page[-1])["position"]
            if not full and (upto is None or after >= upto):
                return

    def follow(
        self, after: int, experiment: int | None = None, *, timeout_seconds: float | None = None
    ) -> Generator[tuple[dict[str, Any], bytes], None, None]:
        """Events behind `after` as they come, for ever, each decoded and as the bytes that were sent; a lost connection is made
        again from the last position. Raises TimedOut after `timeout_seconds`, Refused, and any error that lasts for ten
        minutes."""
        # Deep, because a generator inside this one would not be closed with it.
        outage, deadline = Outage(self._notice), Deadline(timeout_seconds)
        while not deadline.over:
            request = messages.stream(after, experiment, deadline.within(waiting.STREAM_TIMEOUT_SECONDS))
            parser = Messages()
            try:
                with self._transport.open(request) as response:
                    for line in response.lines(deadline):
                        outage.over()
                        if (told := parser.take(line)) is not None:
                            after = told[0]["position"]
                            yield told
                if not deadline.over:
                    sleep(waiting.RECONNECT_SECONDS)
            except Refused:
                raise
            except ClientError as error:
                if not deadline.over:
                    sleep(deadline.within(outage.pause(error)))
        raise TimedOut(f"What was waited for has not come within {timeout_seconds:g} s; it goes on.")

    def _json(self, request: Request) -> Any:
        body = (self._send(request)).body
        return json.loads(body) if body else None

    def _send(self, request: Request) -> Page:
        tries = Tries(self._patience_seconds if request.repeatable else 0.0, answered=self._answered)
        while True:
            try:
                return self._once(request)
            except ClientError as error:
                sleep(tries.pause(error))

    def _once(self, request: Request) -> Page:
        with self._transport.open(request) as response:
            body = response.read()
            self._answered = True
            return Page(body, response.more, response.onward)
