"""Metrics of the door: each request by the template of its route, and what is open."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.instruments import REQUEST_SECONDS, REQUESTS
from tenuto.kernel.monitoring.sampling import Sample
from tenuto.services.gateway.rest.connections import DoorProtocol
from tenuto.services.gateway.rest.context import Gateway

ROUTE = "tenuto.route"
"""Key of a request's scope, where whoever answers it writes the route's template."""
PAGE, OTHER = "page", "other"
"""Route of the web page's addresses and files, and of those that are no route's."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measured:
    """Outside of everything else, so that refusals are counted, too. What is shown of a request is a template and no more: an
    address may name what only its owner should know."""

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


async def door_of(gateway: Gateway) -> Sequence[Sample]:
    await gateway.loop.wait_ready()
    webhooks = gateway.loop.state.notices.webhooks
    senders = [gateway.deliveries.sender(name) for name in webhooks]
    return [
        Sample(catalogue.CONNECTIONS, DoorProtocol.open),
        Sample(catalogue.STREAMS, gateway.tail.clients),
        Sample(catalogue.NOTICES_WAITING, sum(len(webhook.waiting) for webhook in webhooks.values())),
        Sample(catalogue.NOTICES_PARKED, sum(len(webhook.parked) for webhook in webhooks.values())),
        Sample(catalogue.WEBHOOKS_FAILING, sum(sender is not None and bool(sender.answer) for sender in senders)),
    ]
