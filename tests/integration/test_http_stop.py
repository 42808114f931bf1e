"""A server of HTTP that stops while clients have not sent all of their requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from starlette.types import Receive, Scope, Send

from tenuto.kernel.http_serving import bind, serve
from tests.support.waiting import until_on_loop

CLIENTS = 5
HALF = b"POST / HTTP/1.1\r\nHost: tenuto\r\nContent-Length: 100\r\n\r\n{"


async def test_requests_that_are_given_up_are_counted_and_write_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    waiting = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal waiting
        assert (await receive())["body"] == b"{"
        waiting += 1
        await receive()

    caplog.set_level(logging.INFO)
    listener = bind("127.0.0.1", 0)
    serving = asyncio.create_task(serve(app, listener, lambda: None, stop_seconds_max=0))
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(CLIENTS):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            opened.callback(writer.close)
            writer.write(HALF)
        await until_on_loop(lambda: waiting == CLIENTS)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await asyncio.sleep(0)  # the turn in which the requests end
    said = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert [record.getMessage() for record in said if "running task" in record.getMessage()] == [
        f"Cancel {CLIENTS} running task(s), timeout graceful shutdown exceeded"
    ]
    assert [record.getMessage() for record in said if record.exc_info] == []


async def test_an_error_of_an_application_is_still_told(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a defect")

    listener = bind("127.0.0.1", 0)
    serving = asyncio.create_task(serve(app, listener, lambda: None))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(b"GET / HTTP/1.1\r\nHost: tenuto\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 500")
    writer.close()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a defect"]
