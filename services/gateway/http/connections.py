"""Connections of the REST door."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from tenuto.kernel.http_connections import BoundedProtocol
from tenuto.services.gateway.http.problems import MEDIA_TYPE, problem


class DoorProtocol(BoundedProtocol):
    open: ClassVar[int] = 0
    """Connections of this process."""
    gave_way: ClassVar[int] = 0
    """Connections closed since its start to make room for others."""
    turned_away: ClassVar[int] = 0
    """Connections refused since its start because there was no room."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        DoorProtocol.open += 1
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        DoorProtocol.open -= 1
        super().connection_lost(exc)

    def made_room(self) -> None:
        DoorProtocol.gave_way += 1

    def turn_away(self) -> None:
        DoorProtocol.turned_away += 1
        super().turn_away()

    def unreadable(self, message: str) -> tuple[str, bytes]:
        """Problem details, the same as for every error of the door."""
        return MEDIA_TYPE, problem("invalid", f"This is no HTTP request: {message.lower()}").to_json()
