"""Check that the agent still belongs to the cluster. The bus only says that it does not know the user, which also happens for a
moment while it reloads its users; so the gateway is asked."""

from __future__ import annotations

import asyncio
import logging

from tenuto.kernel.backoff import Seldom
from tenuto.workers.agent.joining import GatewayAway, Joined, NotJoined, is_member

logger = logging.getLogger(__name__)

ASK_SECONDS = 1.0
"""Pause between two questions while the bus refuses the agent: a gateway that starts has read the log within seconds."""


class Membership:
    def __init__(self, joined: Joined | None) -> None:
        """`joined`: None if the agent has its credentials from the operator, and knows no gateway to ask."""
        self._joined = joined
        self._refused = asyncio.Event()
        self._seldom = Seldom(logger)

    def refused(self) -> None:
        """Notes that the bus has refused the agent's user."""
        self._refused.set()

    async def revoked(self) -> str:
        """Returns when the agent was revoked: one sentence with what to do."""
        while True:
            await self._refused.wait()
            self._refused.clear()
            if self._joined is not None and not await self._is_member(self._joined):
                return (
                    f"The cluster at {self._joined.gateway} has revoked agent {self._joined.agent_id}, so what ran here "
                    "was ended: to come back, join with a new token (`tenuto agent token` there, `tenuto agent run --join` here)."
                )
            await asyncio.sleep(ASK_SECONDS)

    async def _is_member(self, joined: Joined) -> bool:
        try:
            return await asyncio.to_thread(is_member, joined)
        except (GatewayAway, NotJoined) as error:
            self._seldom.warn(f"the bus refuses this agent, and whether it was revoked cannot be asked: {error}")
            return True
