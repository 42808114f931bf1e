"""Metrics of the door: each request by the template of its route, and what is open."""

from __future__ import annotations

from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.kernel.monitoring.instruments import REQUEST_SECONDS, REQUESTS
from tenuto.schemas.base import Model

ROUTE = "tenuto.route"
"""Key of a request's scope, where the code that answers it writes the route's template."""
PAGE, OTHER = "page", "other"
"""Routes of the web page's addresses and files, and of addresses without a route."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Outermost middleware, so that refusals are counted, too. Of a request it shows only the route's template: an address may
    name things that only its owner should know."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, answered = perf_counter(), False

        async def noted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start" and not answered:
                answered = True
                note(scope, message["status"], perf_counter() - begun)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            if not answered:
                note(scope, 500, perf_counter() - begun)
            raise


def note(scope: Scope, status: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in METHODS else OTHER
    route = scope.get(ROUTE, OTHER)
    REQUESTS.labels(method, route, str(status)).inc()
    REQUEST_SECONDS.labels(method, route).observe(seconds)


class RequestsView(Model):
    whose: str
    """User, or address if no user is known."""
    under_way: int


class DoorView(Model):
    """Connections and requests of the REST interface, in the process that answers; its counts begin anew with the process."""

    connections: int
    connections_max: int
    gave_way: int
    """Connections that waited for their client, and were closed to make room for others."""
    turned_away: int
    """Connections for which there was no room, as all had requests under way."""
    requests_max: int
    """Most requests that one user, or one address, may have under way."""
    requests: tuple[RequestsView, ...]
    """Users with requests under way, most requests first, twenty at most: you, and others only where you may do everything."""
