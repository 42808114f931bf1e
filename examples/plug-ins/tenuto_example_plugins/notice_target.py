"""Notices to phones by ntfy (https://docs.ntfy.sh/publish): `tenuto webhook create NAME --to ntfy
--set server=https://ntfy.example.org --set topic=training --ask token --on experiment:failed`."""

from __future__ import annotations

import time

import aiohttp
from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.webhooks import Url
from tenuto.services.gateway.notices.adapters.guarded_http import Channel, failure
from tenuto.services.gateway.notices.adapters.messages import Message, in_words
from tenuto.services.gateway.notices.adapters.targets.target import (
    ANSWER_BYTES_MAX,
    Delivered,
    Means,
    TargetPlugin,
    host_of,
    judged,
    retry_after,
)

BODY_BYTES_MAX = 4_000
"""ntfy makes a file of what is longer than 4,096 bytes."""
PRIORITIES = {"info": 3, "warning": 4, "error": 5}


class NtfySettings(Model):
    server: Url
    topic: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    token: str = Field(max_length=1_024, pattern=r"^[\x21-\x7e]+$", repr=False)


class Ntfy:
    def __init__(self, settings: NtfySettings, means: Means) -> None:
        self._settings, self._guard, self._http = settings, means.guard, Channel(means.guard)

    async def send(self, message: Message) -> Delivered:
        words = "\n".join(in_words(message)).encode()[:BODY_BYTES_MAX].decode(errors="ignore")
        priority = max(PRIORITIES[notice.severity] for notice in message.notices)
        body = {"topic": self._settings.topic, "title": message.title[:250], "message": words, "priority": priority}
        headers = {"Authorization": f"Bearer {self._settings.token}"}
        self._guard.refused = ""
        try:
            async with self._http.session().post(
                self._settings.server, json=body, headers=headers, allow_redirects=False
            ) as response:
                await response.content.read(ANSWER_BYTES_MAX)
                asked, status = retry_after(response.headers.get("Retry-After"), time.time()), response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise failure(error, self._guard) from None
        return judged(status, asked)

    async def close(self) -> None:
        await self._http.close()


PLUGIN = TargetPlugin(NtfySettings, Ntfy, lambda settings: host_of(settings.server))
