"""The client that a handler is given: its changes are made once, however often the event is handled, and its answers are at least
as new as the event."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import IO, Any

from tenuto.client import AsyncClient
from tenuto.client.messages import AT_LEAST_HEADER, AnswerPage, Request, Upload
from tenuto.schemas.ids import name_id

KEYED = frozenset({"POST", "PATCH"})
MADE = 0
"""Id of things that a dry run did not make: no experiment has it."""
_OF_MADE = re.compile(rf"/(experiments|trials)/{MADE}(?![0-9])")


def call_key(app: str, rule: str, event_id: str, number: int) -> str:
    return str(name_id("automation", app, rule, event_id, str(number)))


class AsOf(AsyncClient):
    """Client whose answers include the log up to a position. Events come from the log itself, or from the bus, and may be ahead
    of the gateway's views: without this, the experiment of an event may still be missing."""

    def __init__(self, base: AsyncClient, position: int) -> None:
        # As `base`, whose connections it uses: making a client of httpx for each event would take longer than most calls.
        self.target, self._transport = base.target, base._transport
        self._patience_seconds, self._notice, self._answered = base._patience_seconds, base._notice, base._answered
        self._position = position

    async def _once(self, request: Request) -> AnswerPage:
        headers = {**request.headers, AT_LEAST_HEADER: str(self._position)}
        return await super()._once(dataclasses.replace(request, headers=headers))


class Cluster(AsOf):
    """Client for one attempt at one event. Each call that changes something carries an Idempotency-Key made of automation, rule,
    event and the number of the call, so the next attempt repeats its calls without harm."""

    def __init__(self, base: AsyncClient, app: str, rule: str, event_id: str, position: int) -> None:
        super().__init__(base, position)
        self._cause = (app, rule, event_id)
        self._calls = 0

    def _next_key(self) -> str:
        self._calls += 1
        return call_key(*self._cause, self._calls)

    async def submit(
        self, config: bytes, context: IO[bytes], context_bytes: int, origin: bytes = b"", *, key: str | None = None
    ) -> Any:
        return await super().submit(config, context, context_bytes, origin, key=self._next_key() if key is None else key)

    async def _send(self, request: Request) -> AnswerPage:
        if request.method in KEYED and not isinstance(request.body, Upload):
            headers = {**request.headers, "Idempotency-Key": self._next_key()}
            request = dataclasses.replace(request, headers=headers)
        return await super()._send(request)


@dataclass(frozen=True)
class Call:
    """Call that a dry run recorded instead of making it."""

    method: str
    path: str
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + ("" if self.body is None else f" {json.dumps(self.body, sort_keys=True)}")


class NotMade(Exception):
    """Raised if the handler needs the result of a call that the dry run did not make."""


class DryCluster(Cluster):
    """Answers reads as the cluster does; records calls that change something, and answers as if they had been made."""

    def __init__(self, base: AsyncClient, app: str, rule: str, event_id: str, position: int) -> None:
        super().__init__(base, app, rule, event_id, position)
        self.calls: list[Call] = []

    async def submit(
        self, config: bytes, context: IO[bytes], context_bytes: int, origin: bytes = b"", *, key: str | None = None
    ) -> Any:
        try:
            body = json.loads(config)
        except ValueError:
            body = config.decode(errors="replace")
        return self._recorded(Call("POST", "/experiments", {"config": body, "context_bytes": context_bytes}))

    async def _once(self, request: Request) -> AnswerPage:
        if _OF_MADE.match(request.path):
            raise NotMade("What follows depends on what a dry run does not make.")
        if request.method == "GET":
            return await super()._once(request)
        assert not isinstance(request.body, Upload)
        body = json.loads(request.body) if request.body else None
        return AnswerPage(json.dumps(self._recorded(Call(request.method, request.path, body))).encode(), False, "")

    def follow(self, after: int, experiment: int | None = None, *, timeout_seconds: float | None = None) -> Any:
        if experiment == MADE:
            raise NotMade("What follows depends on what a dry run does not make.")
        return super().follow(after, experiment, timeout_seconds=timeout_seconds)

    def _recorded(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        return {"id": MADE, "position": 0, "changed": True, "state": "active"}
