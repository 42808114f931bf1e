"""Sources of events of a process: live from the SSE door, or from the bus (`bus.py`); both fill the window of its rules."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tenuto.automation.window import Window
from tenuto.client import AsyncClient
from tenuto.client.errors import Away
from tenuto.client.waiting import Notice
from tenuto.kernel.settings import Settings

AWAY_SECONDS = 15.0
"""Wait between attempts after ten minutes without the cluster: an automation waits for it as long as it takes."""


class Source(Protocol):
    name: str

    async def run(self, window: Window) -> None:
        """Reads from the window's end on, until cancelled. Raises Refused if the token is revoked."""


class SseSource:
    name = "sse"

    def __init__(self, client: AsyncClient, notice: Notice) -> None:
        self._client, self._notice = client, notice

    async def run(self, window: Window) -> None:
        while True:
            try:
                async for told, body in self._client.follow(window.end):
                    window.add(told, len(body))
            except Away as error:
                self._notice(f"{error} It is tried again for ever.")
                await asyncio.sleep(AWAY_SECONDS)


def source_of(settings: Settings, client: AsyncClient, notice: Notice) -> Source:
    """The bus if the settings name an account on it, else the SSE door. Raises SettingsError."""
    if not settings.nats_user:
        return SseSource(client, notice)
    from tenuto.automation.bus import BusSource  # its packages are not worth the import where they are not used

    settings.bus_password()  # says at once what is wrong
    return BusSource(settings, client)
