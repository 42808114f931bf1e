"""Slack, by its own SDK: through an incoming webhook, or as a bot. A bot posts one message per experiment and updates it; later
notices go into its thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from tenuto.schemas.webhooks import SlackTarget
from tenuto.services.gateway.notices.adapters.addresses import Guard
from tenuto.services.gateway.notices.adapters.guarded_http import Channel, failure
from tenuto.services.gateway.notices.adapters.messages import Message
from tenuto.services.gateway.notices.adapters.targets.slack_blocks import blocks, text
from tenuto.services.gateway.notices.adapters.targets.target import (
    ANSWER_CHARACTERS_MAX,
    ATTEMPT_SECONDS_MAX,
    Delivered,
    Means,
    NotEver,
    NotNow,
    TargetPlugin,
    host_of,
    judged,
    retry_after,
)

PASSING = frozenset({"fatal_error", "internal_error", "ratelimited", "rate_limited", "request_timeout", "service_unavailable"})
"""Errors of the Web API that may be over at the next attempt; all others need a person."""
GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
"""Errors that say that the message about this experiment can no longer be updated: another one is posted."""
_FAILED = (aiohttp.ClientError, SlackClientError, OSError, TimeoutError, ValueError)

logging.getLogger("slack_sdk").setLevel(logging.WARNING)  # below that level it logs addresses and bodies


class _Slack:
    def __init__(self, guard: Guard) -> None:
        self._guard, self._http = guard, Channel(guard)

    def _options(self) -> Any:
        """Options of the SDK's clients, which try once."""
        return {"timeout": int(ATTEMPT_SECONDS_MAX), "session": self._http.session(), "retry_handlers": []}

    async def close(self) -> None:
        await self._http.close()


class SlackWebhook(_Slack):
    def __init__(self, url: str, guard: Guard) -> None:
        super().__init__(guard)
        self._url = url

    async def send(self, message: Message) -> Delivered:
        self._guard.refused = ""
        try:
            client = AsyncWebhookClient(self._url, **self._options())
            answer = await client.send(text=text(message), blocks=blocks(message))
        except _FAILED as error:
            raise failure(error, self._guard) from None
        said = answer.body.strip()
        word = f": {said[:ANSWER_CHARACTERS_MAX]}" if said.replace("_", "").isalnum() else ""
        try:
            return judged(answer.status_code, retry_after(_header(answer.headers), time.time()), final=True)
        except NotEver as error:
            raise NotEver(error.answer + word) from None
        except NotNow as error:
            raise NotNow(error.answer + word, error.retry_after_seconds) from None


class SlackBot(_Slack):
    def __init__(self, token: str, channel: str, api_url: str, guard: Guard) -> None:
        super().__init__(guard)
        self._token, self._channel, self._api_url = token, channel, api_url

    async def send(self, message: Message) -> Delivered:
        self._guard.refused = ""
        channel, _, posted = message.reference.partition("/")
        if not posted:
            return await self._posted(message)
        try:
            # The update comes first, as repeating it is harmless: a failure between the two adds nothing to the thread.
            shown = blocks(message, details=False)
            await self._asked("chat_update", channel=channel, ts=posted, text=text(message), blocks=shown)
        except _MessageGone:
            return await self._posted(message)
        await self._asked("chat_postMessage", channel=channel, thread_ts=posted, text=text(message), blocks=blocks(message))
        return Delivered("ok", message.reference)

    async def _posted(self, message: Message) -> Delivered:
        answer = await self._asked("chat_postMessage", channel=self._channel, text=text(message), blocks=blocks(message))
        return Delivered("ok", f"{answer.get('channel', self._channel)}/{answer.get('ts', '')}")

    async def _asked(self, method: str, **arguments: Any) -> Any:
        client = AsyncWebClient(self._token, base_url=self._api_url, **self._options())
        try:
            return await getattr(client, method)(**arguments)
        except SlackApiError as error:
            raise _refusal(error) from None
        except _FAILED as error:
            raise failure(error, self._guard) from None


class _MessageGone(Exception):
    pass


def _refusal(error: SlackApiError) -> Exception:
    answer: Any = error.response
    status = int(getattr(answer, "status_code", 0) or 0)
    said = answer.get("error") if isinstance(getattr(answer, "data", None), dict) else None
    word = str(said)[:ANSWER_CHARACTERS_MAX] if said else f"HTTP {status}"
    if said in GONE:
        return _MessageGone()
    asked = retry_after(_header(getattr(answer, "headers", {})), time.time())
    if status == 429 or status >= 500 or said in PASSING or not said:
        return NotNow(f"Slack says {word}", asked)
    return NotEver(f"Slack says {word}")


def _header(headers: Mapping[str, Any]) -> str | None:
    for name, value in headers.items():
        if name.lower() == "retry-after":
            return str(value[0] if isinstance(value, list) else value)
    return None


def _open(target: SlackTarget, means: Means) -> SlackBot | SlackWebhook:
    if target.token is not None:
        return SlackBot(target.token, target.channel or "", target.api_url, means.guard)
    return SlackWebhook(target.url or "", means.guard)


def _shown(target: SlackTarget) -> str:
    return f"channel {target.channel}" if target.token is not None else host_of(target.url or "")


PLUGIN = TargetPlugin(SlackTarget, _open, _shown)
