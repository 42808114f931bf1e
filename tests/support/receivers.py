"""Receivers of notices on loopback that check what they are sent as the real ones document it, and answer as theirs do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError


@dataclass
class Fault:
    """What happens in place of an answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False
    """The connection is closed without a word."""


class Receiver:
    """Takes messages; the next ones meet the faults of `faults` first."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.taken: list[Any] = []
        """Bodies of what was taken, in order."""
        self.asked = 0
        """Requests, whatever became of them."""
        self.complaints: list[str] = []
        """What was wrong with requests, by the documented schema."""
        self.url = ""
        self.arrived = asyncio.Condition()

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    async def wait_taken(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.taken) >= count)

    async def wait_asked(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.asked >= count)

    async def take(self, what: Any) -> None:
        async with self.arrived:
            self.taken.append(what)
            self.arrived.notify_all()

    async def fault(self, request: web.Request) -> web.Response | None:
        async with self.arrived:
            self.asked += 1
            self.arrived.notify_all()
        fault = self.faults.pop(0) if self.faults else self.always
        if fault is None:
            return None
        if fault.hang:
            await asyncio.sleep(3_600)
        if fault.cut:
            assert request.transport is not None
            request.transport.abort()
        return self.failed(fault)

    def failed(self, fault: Fault) -> web.Response:
        return web.Response(status=fault.status or 500, headers=fault.headers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Receiver]:
        app = web.Application()
        app.add_routes(self.routes())
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            yield self
        finally:
            await runner.cleanup()


class SignedReceiver(Receiver):
    """By the Standard Webhooks convention: with the library's own check of id, time and signature."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret
        self.ids: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/hook", self._hook), web.post("/elsewhere", self._hook)]

    async def _hook(self, request: web.Request) -> web.Response:
        body = await request.text()
        if (answer := await self.fault(request)) is not None:
            return answer
        try:
            data = Webhook(self.secret).verify(body, dict(request.headers))
        except WebhookVerificationError as error:
            self.complaints.append(str(error))
            return web.Response(status=401)
        for name in ("type", "timestamp", "data"):
            if name not in data:
                self.complaints.append(f"no {name}")
        self.ids.append(request.headers["webhook-id"])
        await self.take(data)
        return web.Response(status=204)


class NtfyReceiver(Receiver):
    """By https://docs.ntfy.sh/publish/#publish-as-json."""

    TOKEN, TOPIC = "tk_the-secret-of-a-sender", "training"

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/", self._post), web.post("/elsewhere", self._post)]

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (answer := await self.fault(request)) is not None:
            return answer
        if request.headers.get("Authorization") != f"Bearer {self.TOKEN}":
            return web.json_response({"code": 40101, "http": 401, "error": "unauthorized"}, status=401)
        if body.get("topic") != self.TOPIC or not 1 <= len(body.get("message", "").encode()) <= 4_096:
            self.complaints.append("topic or message")
        if body.get("priority") not in (1, 2, 3, 4, 5) or not isinstance(body.get("title"), str):
            self.complaints.append("priority or title")
        await self.take(body)
        return web.json_response({"id": "1", "event": "message", "topic": self.TOPIC})


_BLOCKS = {"header", "section", "context", "divider", "actions"}


def slack_problems(body: Any) -> list[str]:
    """What Slack says against a message, by https://docs.slack.dev/reference/block-kit/blocks."""
    if not isinstance(body.get("text"), str) or not body["text"]:
        return ["no_text"]
    blocks = body.get("blocks", [])
    wrong = ["too many blocks"] if len(blocks) > 50 else []
    for block in blocks:
        kind, text = block.get("type"), block.get("text", {})
        if kind not in _BLOCKS:
            wrong.append(f"type {kind}")
        if kind == "header" and (text.get("type") != "plain_text" or not 1 <= len(text.get("text", "")) <= 150):
            wrong.append("header")
        if kind == "section" and (text.get("type") not in ("mrkdwn", "plain_text") or not 1 <= len(text.get("text", "")) <= 3000):
            wrong.append("section")
        if kind == "context" and not 1 <= len(block.get("elements", [])) <= 10:
            wrong.append("context")
    return wrong


class SlackReceiver(Receiver):
    """An incoming webhook, and the three methods of the Web API that a bot posts with."""

    TOKEN = "xoxb-123456789012-abcdefghijkl"

    def __init__(self) -> None:
        super().__init__()
        self.posts: dict[str, dict[str, Any]] = {}
        """Messages of the channel by their time stamps."""
        self.replies: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/services/T000/B000/SECRETSECRET", self._webhook),
            web.post("/api/chat.postMessage", self._post),
            web.post("/api/chat.update", self._update),
        ]

    async def _webhook(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (answer := await self.fault(request)) is not None:
            return answer
        if wrong := slack_problems(body):
            self.complaints += wrong
            return web.Response(status=400, text="invalid_blocks")
        await self.take(body)
        return web.Response(text="ok")

    def failed(self, fault: Fault) -> web.Response:
        word = {429: "rate_limited", 404: "no_service", 403: "action_prohibited"}.get(fault.status, "server_error")
        return web.Response(status=fault.status or 500, headers=fault.headers, text=word)

    async def _method(self, request: web.Request) -> tuple[dict[str, Any], web.Response | None]:
        body = await request.json() if request.content_type == "application/json" else dict(await request.post())
        if isinstance(body.get("blocks"), str):
            body["blocks"] = json.loads(body["blocks"])
        if (answer := await self.fault(request)) is not None:
            return body, answer
        if request.headers.get("Authorization") != f"Bearer {self.TOKEN}":
            return body, web.json_response({"ok": False, "error": "invalid_auth"})
        if wrong := slack_problems(body):
            self.complaints += wrong
            return body, web.json_response({"ok": False, "error": "invalid_blocks"})
        if body.get("channel") != "C024BE91L":
            return body, web.json_response({"ok": False, "error": "channel_not_found"})
        return body, None

    async def _post(self, request: web.Request) -> web.Response:
        body, refused = await self._method(request)
        if refused is not None:
            return refused
        stamp = f"17000000{next(self._numbers):02d}.000100"
        if "thread_ts" in body:
            self.replies.append(body)
        else:
            self.posts[stamp] = body
        await self.take(body)
        return web.json_response({"ok": True, "channel": body["channel"], "ts": stamp, "message": {"text": body["text"]}})

    async def _update(self, request: web.Request) -> web.Response:
        body, refused = await self._method(request)
        if refused is not None:
            return refused
        if body.get("ts") not in self.posts:
            return web.json_response({"ok": False, "error": "message_not_found"})
        self.posts[body["ts"]] = body
        return web.json_response({"ok": True, "channel": body["channel"], "ts": body["ts"], "text": body["text"]})


class PagerDutyReceiver(Receiver):
    """The Events API v2: https://developer.pagerduty.com/docs/send-alert-event."""

    KEY = "0123456789abcdef0123456789abcdef"

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, dict[str, Any]] = {}
        """Alerts that are not resolved, by their dedup key."""

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v2/enqueue", self._enqueue)]

    async def _enqueue(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (answer := await self.fault(request)) is not None:
            return answer
        wrong = pagerduty_problems(body, self.KEY)
        if wrong:
            self.complaints += wrong
            return web.json_response(
                {"status": "invalid event", "message": "Event object is invalid", "errors": wrong}, status=400
            )
        key = body.get("dedup_key") or "made-by-pagerduty"
        if body["event_action"] == "resolve":
            self.open.pop(key, None)
        else:
            self.open[key] = body
        await self.take(body)
        return web.json_response({"status": "success", "message": "Event processed", "dedup_key": key}, status=202)


def pagerduty_problems(body: Any, key: str) -> list[str]:
    wrong = [] if body.get("routing_key") == key else ["routing_key"]
    action = body.get("event_action")
    if action not in ("trigger", "acknowledge", "resolve"):
        wrong.append("event_action")
    if action == "trigger":
        payload = body.get("payload", {})
        if not 1 <= len(payload.get("summary", "")) <= 1024:
            wrong.append("payload.summary")
        if not payload.get("source"):
            wrong.append("payload.source")
        if payload.get("severity") not in ("critical", "warning", "error", "info"):
            wrong.append("payload.severity")
        if "timestamp" in payload and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", payload["timestamp"]):
            wrong.append("payload.timestamp")
        wrong += ["links"] if any(set(link) - {"href", "text"} for link in body.get("links", [])) else []
    elif not body.get("dedup_key"):
        wrong.append("dedup_key")
    if len(body.get("dedup_key") or "") > 255:
        wrong.append("dedup_key")
    return wrong
