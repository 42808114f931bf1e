"""The HTTP client of targets: connects to guarded addresses only, looks names up in a thread of its own, follows no redirect."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tenuto.services.gateway.notices.adapters.addresses import Guard
from tenuto.services.gateway.notices.adapters.targets.target import ATTEMPT_SECONDS_MAX, NotEver, NotNow
from tenuto.version import __version__

USER_AGENT = f"Tenuto/{__version__}"


class RedirectRefused(aiohttp.ClientError):
    pass


class Lookup(AbstractResolver):
    """Looks up names of one target in its own thread: a name server that does not answer blocks no other target."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "webhook-lookup")

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        infos = await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        )
        return [
            ResolveResult(
                hostname=host, host=str(place[0]), port=port, family=int(kind), proto=proto, flags=socket.AI_NUMERICHOST
            )
            for kind, _, proto, _, place in infos
        ]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class Channel:
    """The HTTP client of one target, opened at its first use. It takes nothing from this process's environment (proxies,
    passwords)."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self._lookup = guard, Lookup()
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=2, resolver=self._lookup, socket_factory=self._guard.socket, ttl_dns_cache=0, use_dns_cache=False
            )
            tracing = aiohttp.TraceConfig()
            tracing.on_request_redirect.append(_no_redirect)  # type: ignore[arg-type]
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS_MAX),
                headers={"User-Agent": USER_AGENT},
                trace_configs=[tracing],
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=8_190,
                max_field_size=8_190,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._lookup.close()  # a session closes only a resolver that it made itself


async def _no_redirect(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
    raise RedirectRefused


def failure(error: BaseException, guard: Guard) -> NotNow | NotEver:
    """Outcome of an attempt without an answer, in words without address or secret."""
    if guard.refused:
        return NotEver(f"its address is refused: {guard.refused}")
    if isinstance(error, RedirectRefused):
        return NotEver("a redirect, which is not followed; give the webhook the address that it leads to")
    if isinstance(error, aiohttp.InvalidURL):
        return NotEver("its address is none that one could connect to")
    if isinstance(error, TimeoutError):
        return NotNow(f"no answer within {ATTEMPT_SECONDS_MAX:.0f} s")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return NotNow("its certificate cannot be trusted")
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return NotNow("its name cannot be looked up")
    if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
        return NotNow("it cannot be connected to")
    return NotNow(f"the connection broke ({type(error).__name__})")
