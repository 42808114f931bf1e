"""Any route of the REST door, with retries of requests that may be sent again, and live events that resume where they broke."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import IO, Any, Self

from tenuto.client import messages, waiting
from tenuto.client.aio.pauses import sleep
from tenuto.client.aio.transport import AsyncResponse, AsyncTransport
from tenuto.client.errors import Away, ClientError, Interrupted, Refused, TimedOut, Unreachable
from tenuto.client.messages import AnswerPage, Messages, Request, with_json
from tenuto.client.target import Target
from tenuto.client.waiting import ClusterOutage, Deadline, Notice, Tries

PAGE_EVENTS = 5_000


class AsyncRestClient:
    """Door to a cluster. Raises ClientError, with the server's own sentence if there is one."""

    def __init__(
        self, target: Target, *, patience_seconds: float = waiting.PATIENCE_SECONDS, notice: Notice = lambda text: None
    ) -> None:
        """Door to the cluster at `target`. `patience_seconds`: longest time for which a request that may be sent again is tried
        while the cluster is unreachable. `notice` is told when something that waits has lost the cluster, and when it is
        reachable again."""
        self.target = target
        """Address and token of the cluster."""
        self._transport = AsyncTransport(target)
        self._patience_seconds, self._notice = patience_seconds, notice
        self._answered = False

    @property
    def url(self) -> str:
        """Address of the cluster, without a slash at its end."""
        return self.target.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections. Called at the end of a `with` block."""
        await self._transport.close()

    async def get(self, path: str, **query: Any) -> Any:
        """Decoded answer of a route. `path`: below /api/v1, such as /status; the same for the methods that follow. `query`:
        parameters by name; None: not given; a list: given several times. Raises ClientError, and Refused if the cluster says
        no."""
        return json.loads((await self.fetch(path, **query))[0])

    async def post(self, path: str, body: Any = None, *, key: str = "", **query: Any) -> Any:
        """Decoded answer of a route; None if it is empty. `path` and `query`: as for `get`. `body`: sent as JSON; None: nothing.
        `key`: an Idempotency-Key, for the routes that know one; with it the request is tried again. Empty: none. Raises
        ClientError, and Refused if the cluster says no."""
        return await self._json(with_json("POST", path, body, query, key))

    async def patch(self, path: str, body: Any) -> Any:
        """Decoded answer of a route; None if it is empty. `path`: below /api/v1. `body`: sent as JSON. Raises ClientError, and
        Refused if the cluster says no."""
        return await self._json(with_json("PATCH", path, body, {}))

    async def put(self, path: str, body: Any) -> Any:
        """Decoded answer of a route; None if it is empty. `path`: below /api/v1. `body`: sent as JSON. Raises ClientError, and
        Refused if the cluster says no."""
        return await self._json(with_json("PUT", path, body, {}))

    async def delete(self, path: str) -> Any:
        """Decoded answer of a route; None if it is empty. `path`: below /api/v1. Raises ClientError, and Refused if the cluster
        says no."""
        return await self._json(with_json("DELETE", path, None, {}))

    async def fetch(self, path: str, **query: Any) -> tuple[bytes, bool]:
        """Body of an answer, and True if there is more behind it. `path` and `query`: as for `get`. Raises ClientError, and
        Refused if the cluster says no."""
        return (await self._send(Request("GET", path, query)))[:2]

    async def pages(self, path: str, **query: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Pages of a list, as long as an answer names a next one. `path` and `query`: as for `get`. Raises ClientError, and
        Refused if the cluster says no."""
        request = Request("GET", path, query)
        while True:
            page = await self._send(request)
            yield messages.items(json.loads(page.body))
            if not page.onward:
                return
            request = Request("GET", f"{path}?{page.onward}")

    async def wait_get(self, path: str) -> Any:
        """Same as `get`, but waits through an outage of the cluster's database, and through any outage once the cluster has
        answered. `path`: below /api/v1. Raises ClientError, and Refused if the cluster says no."""
        outage = ClusterOutage(self._notice)
        while True:
            try:
                page = await self._once(Request("GET", path))
            except ClientError as error:
                away = isinstance(error, Away) and not isinstance(error, (Unreachable, Interrupted))
                if not (away or outage.lasts):
                    raise
                await sleep(outage.pause(error))
            else:
                outage.over()
                return json.loads(page.body)

    async def submit(
        self, config: bytes, context: IO[bytes], context_bytes: int, origin: bytes = b"", *, key: str | None = None
    ) -> Any:
        """Submits a configuration, and returns the new experiment as the cluster describes it. `config`: YAML or JSON. `context`:
        a packed model directory, sent from its present position on. `context_bytes`: number of bytes to send. `origin`: where
        both come from, as JSON; empty: not recorded. `key`: the Idempotency-Key; None: a new one, so that the submission can be
        sent again if its answer was lost. Raises ClientError, and Refused if the cluster says no."""
        key = messages.new_key() if key is None else key
        return await self._json(messages.submission(config, context, context_bytes, origin, key))

    def open(self, path: str) -> contextlib.AbstractAsyncContextManager[AsyncResponse]:
        """Opens an answer that is read from the connection as it comes. Use with `with`. `path`: below /api/v1. Raises
        ClientError on entry."""
        return self._transport.open(Request("GET", path))

    async def event_bodies(self, after: int = 0, upto: int | None = None, experiment: int | None = None) -> AsyncIterator[bytes]:
        """Events as the gateway sends them: `data` is byte for byte as recorded. `after`: position behind which they begin; 0:
        with the first. `upto`: last position; None: the present head. `experiment`: only those of the experiment with this id;
        None: all. Raises ClientError, and Refused if the cluster says no."""
        while True:
            body, full = await self.fetch("/events", after=after, limit=PAGE_EVENTS, upto=upto, experiment=experiment)
            page = messages.split_array(body)
            if not page:
                return
            for event in page:
                yield event
            after = json.loads(page[-1])["position"]
            if not full and (upto is None or after >= upto):
                return

    async def follow(
        self, after: int, experiment: int | None = None, *, timeout_seconds: float | None = None
    ) -> AsyncGenerator[tuple[dict[str, Any], bytes], None]:
        """Events behind `after` as they come, for ever, each decoded and as the bytes that were sent; a lost connection is made
        again from the last position. `experiment`: only those of the experiment with this id; None: all. `timeout_seconds`:
        longest time; None: no limit. Raises TimedOut after it, Refused, and any error that lasts for ten minutes."""
        # Deep, because a generator inside this one would not be closed with it.
        outage, deadline = ClusterOutage(self._notice), Deadline(timeout_seconds)
        while not deadline.over:
            request = messages.stream(after, experiment, deadline.within(waiting.STREAM_TIMEOUT_SECONDS))
            parser = Messages()
            try:
                async with self._transport.open(request) as response:
                    async for line in response.lines(deadline):
                        outage.over()
                        if (told := parser.take(line)) is not None:
                            after = told[0]["position"]
                            yield told
                if not deadline.over:
                    await sleep(waiting.RECONNECT_SECONDS)
            except Refused:
                raise
            except ClientError as error:
                if not deadline.over:
                    await sleep(deadline.within(outage.pause(error)))
        raise TimedOut(f"What was waited for has not come within {timeout_seconds:g} s; it goes on.")

    async def _json(self, request: Request) -> Any:
        body = (await self._send(request)).body
        return json.loads(body) if body else None

    async def _send(self, request: Request) -> AnswerPage:
        tries = Tries(self._patience_seconds if request.repeatable else 0.0, answered=self._answered)
        while True:
            try:
                return await self._once(request)
            except ClientError as error:
                await sleep(tries.pause(error))

    async def _once(self, request: Request) -> AnswerPage:
        async with self._transport.open(request) as response:
            body = await response.read()
            self._answered = True
            return AnswerPage(body, response.more, response.onward)
