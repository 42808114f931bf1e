"""Agents' credentials on the bus: written into the directory of its users, which the server is then told to read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import nats.errors

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.bus import SafeClient, close, security_of
from tenuto.kernel.bus_permissions import KEEPER
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.joining import hash_of

RETRY_SECONDS, RETRY_SECONDS_MAX = 0.5, 10.0
logger = logging.getLogger(__name__)

RELOAD_SECONDS_MAX = 5.0
"""Longest wait for a reload, which takes milliseconds; after it the caller is told that the bus is unreachable."""


class BusNotTold(Exception):
    """The users are written, but the server does not know yet; `str(error)` says why and what to do."""


class BusKeeper:
    """One change at a time. All methods raise OSError, and BusNotTold; repeating one completes what was begun."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._users = BusUsers(Path(settings.bus_users_directory).absolute())
        self._changing = asyncio.Lock()
        self._seldom = Seldom(logger)
        self._untold = asyncio.Event()
        """Set while the server may not know the users as they are written."""

    async def password_hash(self, agent_id: str) -> str | None:
        """SHA-256 of the agent's password. None: the agent has no credentials."""
        password = await asyncio.to_thread(self._users.password, agent_id)
        return None if password is None else hash_of(password)

    async def admit(self, agent_id: str, password: str) -> None:
        async with self._changing:
            await asyncio.to_thread(self._users.admit_agent, agent_id, password)
            await self._reload()

    async def remove(self, agent_id: str) -> None:
        """The server closes the agent's connections."""
        async with self._changing:
            await asyncio.to_thread(self._users.remove_agent, agent_id, revoked=True)
            await self._reload()

    async def run(self, revoked: Callable[[], Collection[str]]) -> None:
        """Completes unfinished revocations until cancelled: of agents that were revoked when the gateway ended, or while the bus
        was unreachable or the disk failed. Raises nothing."""
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while True:
            try:
                await self._complete(revoked())
                backoff.worked()
                await self._untold.wait()
            except (OSError, BusNotTold):
                await asyncio.sleep(backoff.failed())

    async def _complete(self, agent_ids: Collection[str]) -> None:
        async with self._changing:
            left = [name for name in await asyncio.to_thread(self._users.agents) if name in agent_ids]
            for name in left:
                await asyncio.to_thread(self._users.remove_agent, name, revoked=True)
            if left or self._untold.is_set():  # a reload for nothing would still disturb who logs in just then
                await self._reload()

    async def _reload(self) -> None:
        client, password = SafeClient(), await asyncio.to_thread(self._users.keeper)
        options: dict[str, Any] = {
            "user": KEEPER,
            "password": password,
            "inbox_prefix": subjects.inbox(KEEPER),
            "name": KEEPER,
            "allow_reconnect": False,
            "connect_timeout": RELOAD_SECONDS_MAX,
            "error_cb": _nothing,
            **security_of(self._settings),
        }
        try:
            async with asyncio.timeout(2 * RELOAD_SECONDS_MAX):
                await client.connect(self._settings.nats_url, **options)
                server = str(client._server_info["server_id"])
                await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", b"", timeout=RELOAD_SECONDS_MAX)
            self._untold.clear()
        except (nats.errors.Error, OSError, TimeoutError) as error:
            self._untold.set()
            self._seldom.warn(f"NATS cannot be told to read its users again: {str(error) or type(error).__name__}")
            raise BusNotTold(
                "The bus could not be told of the change: try again in a few seconds. Its configuration needs "
                "`system_account: TENUTO_SYSTEM` (deploy/nats.conf)."
            ) from error
        finally:
            await close(client)


async def _nothing(_: Exception) -> None:
    """The request itself fails, too, and says why; nats-py would write a traceback."""
