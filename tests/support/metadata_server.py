"""Metadata service of a machine in a cloud, on a port of this machine: it refuses what the real ones refuse.

AWS (instance metadata service, version 2): no answer without a token that it gave, by PUT with a time to live; requests that
came through a proxy get no token. Google: no answer without `Metadata-Flavor: Google`, nor with X-Forwarded-For;
`wait_for_change` waits.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

AWS_TTL_MAX = 21_600


class MetadataServer:
    """`values`: by path below the API's own, such as `spot/instance-action`, or `instance/preempted`. Change them by `put`."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"}
        self.guest: dict[str, str] = {}
        """Guest attributes (Google) that the machine has left."""
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        """Method, path and status of each request."""
        self.bad: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """Answers in place of the service."""
        self.url = ""
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def put(self, path: str, value: str | None) -> None:
        """None: there is no such value."""
        async with self._changed:
            if value is None:
                self.values.pop(path, None)
            else:
                self.values[path] = value
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        if self.bad is not None:
            self.asked.append(f"{request.method} {path}")
            return await self.bad(request)
        response = await self._google(request, path) if path.startswith("computeMetadata/") else self._amazon(request, path)
        self.asked.append(f"{request.method} {path} {response.status}")
        return response

    def _amazon(self, request: web.Request, path: str) -> web.Response:
        if path == "latest/api/token":
            seconds = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if request.method != "PUT":
                return web.Response(status=405)
            if "X-Forwarded-For" in request.headers:
                return web.Response(status=403)
            if not (seconds.isdecimal() and 1 <= int(seconds) <= AWS_TTL_MAX):
                return web.Response(status=400)
            token = f"token-{len(self.asked)}=="
            self.tokens.add(token)
            return web.Response(text=token, headers={"X-aws-ec2-metadata-token-ttl-seconds": seconds})
        if request.headers.get("X-aws-ec2-metadata-token", "") not in self.tokens:
            return web.Response(status=401)
        if request.method != "GET":
            return web.Response(status=405)
        name = path.removeprefix("latest/meta-data/")
        return web.Response(text=self.values[name]) if name in self.values and name != path else web.Response(status=404)

    async def _google(self, request: web.Request, path: str) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return web.Response(status=403)
        name = path.removeprefix("computeMetadata/v1/")
        attribute = name.removeprefix("instance/guest-attributes/")
        if request.method == "PUT" and attribute != name and attribute.count("/") == 1:
            self.guest[attribute] = await request.text()
            return web.Response(headers={"Metadata-Flavor": "Google"})
        if name == path or name not in self.values:
            return web.Response(status=404, headers={"Metadata-Flavor": "Google"})
        query = request.query
        if not set(query) <= {"alt", "wait_for_change", "timeout_sec", "last_etag", "recursive"}:
            return web.Response(status=400)
        if query.get("wait_for_change") == "true":
            before = query.get("last_etag") or _etag(self.values[name])
            try:
                async with asyncio.timeout(float(query.get("timeout_sec", "3600"))), self._changed:
                    await self._changed.wait_for(lambda: _etag(self.values[name]) != before)
            except TimeoutError:
                pass
        value = self.values[name]
        headers = {"Metadata-Flavor": "Google", "ETag": _etag(value), "Content-Type": "application/text"}
        return web.Response(body=value.encode(), headers=headers)


def _etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]


@asynccontextmanager
async def metadata_server() -> AsyncIterator[MetadataServer]:
    server = MetadataServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
