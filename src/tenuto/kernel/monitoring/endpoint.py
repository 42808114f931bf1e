"""Endpoint of a service for monitoring: /metrics, /healthz, /readyz, on a port of its own, in the service's event loop.

So an answer to /healthz proves that the loop runs. A client of the port sees no secret, and can hold nothing up: there are
few connections, of each address and in all, metrics are rendered at most once a second, and the rate of answers is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.types import Receive, Scope, Send

from tenuto.kernel.http_connections import BoundedProtocol
from tenuto.kernel.http_serving import bind, serve
from tenuto.kernel.monitoring.sampling import MonitoredState, Readiness

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
CONNECTIONS_PER_ADDRESS_MAX = 8
"""Most connections of one address: a scraper, or the probes of Kubernetes, have one or two."""
HELD_SECONDS_MIN = 1.0
"""A connection of this age gives way to a new one."""
TURNED_AWAY_SECONDS = 1.0
"""Time until a connection too many is closed: a client in a loop would otherwise make thousands a second, which takes half a
processor."""
TURNED_AWAY_MAX = 256
"""Most such connections: each is an open file. More are closed at once."""
HEAD_SECONDS_MAX = 5.0
"""Longest time to say what is wanted: one short request."""
ANSWERS_PER_SECOND_MAX = 50
"""Most answers to all clients together: far more than scrapers and probes ask for, and a few hundredths of a processor."""
RENDER_SECONDS = 1.0
"""Age up to which a rendered answer is given again: it takes some milliseconds to make."""
OPEN_METRICS = "application/openmetrics-text"
STOP_SECONDS_MAX = 1
TEXT = "text/plain; charset=utf-8"
STARTING = "The service is starting: it waits for PostgreSQL, for NATS, or reads the log."


class MonitoringProtocol(BoundedProtocol):
    """A client that holds connections, or makes one after the other, keeps out neither a scraper nor the probes, whose failure
    would have the service started again."""

    connections_max = CONNECTIONS_MAX
    head_seconds_max = HEAD_SECONDS_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.since = self.loop.time()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        _OPEN.discard(self)
        _TURNED_AWAY.discard(self)
        super().connection_lost(exc)

    def admitted(self) -> bool:
        mine = [other for other in _OPEN if other.address == self.address]
        if len(mine) < CONNECTIONS_PER_ADDRESS_MAX and len(_OPEN) < self.connections_max:
            _OPEN.add(self)
            return True
        # Those of the address that has the most: a flood is in its own way.
        counts = Counter(other.address for other in _OPEN)
        crowded = mine if len(mine) >= CONNECTIONS_PER_ADDRESS_MAX else _of(counts.most_common(1)[0][0])
        oldest = min(crowded, key=lambda other: other.since)
        if self.since - oldest.since < HELD_SECONDS_MIN:
            return False
        oldest.transport.abort()
        _OPEN.discard(oldest)
        _OPEN.add(self)
        return True

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def turn_away(self) -> None:
        """Closes the connection after a pause: a client that waits makes no further connection meanwhile."""
        if len(_TURNED_AWAY) >= TURNED_AWAY_MAX:
            self.transport.abort()
            return
        _TURNED_AWAY.add(self)
        self.transport.pause_reading()
        self.loop.call_later(TURNED_AWAY_SECONDS, self.transport.abort)


def _of(address: str) -> list[MonitoringProtocol]:
    return [other for other in _OPEN if other.address == address]


_OPEN: set[MonitoringProtocol] = set()
"""Connections that are served."""
_TURNED_AWAY: set[MonitoringProtocol] = set()


class MonitoringEndpoint:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        registry.register(Readiness(self._not_ready))
        self._rendered: dict[tuple[str, bool], tuple[float, bytes]] = {}
        """Time of rendering and answer, by content type and readiness: so `/metrics` never contradicts `/readyz`."""
        self._next = 0.0
        """Earliest time of the next answer."""
        self.port = 0
        self.watched: MonitoredState | None = None
        """None: the service has not begun."""

    async def run(self, listener: socket.socket) -> None:
        """Serves until cancelled."""
        try:
            await serve(self, listener, lambda: None, None, MonitoringProtocol, STOP_SECONDS_MAX)
        finally:
            listener.close()

    def listen(self, host: str, port: int) -> socket.socket:
        """Raises SettingsError."""
        listener = bind(host, port, "TENUTO_METRICS_LISTEN")
        self.port = listener.getsockname()[1]
        logger.info("metrics at port %d, /metrics; probes at /healthz and /readyz", self.port)
        return listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await self._turn()
        status, media_type, body = self._answer(scope)
        headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _turn(self) -> None:
        """Waits for this answer's turn. Those that wait are as few as connections."""
        now = asyncio.get_running_loop().time()
        # A second's worth may come at once: probes and scrapers meet now and then.
        turn = self._next = max(self._next + 1 / ANSWERS_PER_SECOND_MAX, now - 1.0)
        if turn > now:
            await asyncio.sleep(turn - now)

    def _answer(self, scope: Scope) -> tuple[int, str, bytes]:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, TEXT, b"Only GET is answered here.\n"
        match scope["path"]:
            case "/healthz":
                return 200, TEXT, b"ok\n"
            case "/readyz":
                reason = self._not_ready()
                return (503 if reason else 200), TEXT, (reason or "ok").encode() + b"\n"
            case "/metrics":
                return 200, *self._metrics(scope)
        return 404, TEXT, b"There are /metrics, /healthz and /readyz.\n"

    def _not_ready(self) -> str:
        return STARTING if self.watched is None else self.watched.ready()

    def _metrics(self, scope: Scope) -> tuple[str, bytes]:
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"").decode("latin-1")
        # Chosen by our words, not by the request's: the library would repeat a version that the client made up.
        encode, media_type = choose_encoder(f"{OPEN_METRICS};version=1.0.0" if OPEN_METRICS in accept else "")
        now = asyncio.get_running_loop().time()
        key = (media_type, not self._not_ready())
        made, body = self._rendered.get(key, (0.0, b""))
        if not body or now - made >= RENDER_SECONDS:
            body = encode(self._registry)
            self._rendered[key] = now, body
        return media_type, body
