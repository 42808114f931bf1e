"""Tells agents what they should have now, as soon as it changed.

What is sent is the whole present state of one agent's assignments, never an order: it may be lost (the next heartbeat's answer
repairs it), repeated, or sent by a launcher that has started again, and needs no memory of what was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import asyncpg
from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.report_tokens import ReportTokens
from tenuto.kernel.secrets import Secrets
from tenuto.kernel.settings import SettingsError
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Assignments, AssignReply
from tenuto.schemas.envelope import Event
from tenuto.services.launcher.assigning import agents_concerned, assignments_of, secrets_of
from tenuto.services.launcher.state import State

logger = logging.getLogger(__name__)

ASSIGN_SECONDS_MAX = 2.0
"""An agent answers when its disk has the assignment: milliseconds. Beyond this the next heartbeat does it."""


def with_tokens(assignments: Assignments, agent_id: str, tokens: ReportTokens) -> Assignments:
    """The agent reports about these allocations with them."""
    ids = [assignment.allocation_id for assignment in assignments.assignments]
    return assignments.model_copy(update={"tokens": tokens.tokens(agent_id, ids)})


async def with_secrets(assigned: Assignments, secrets: Secrets) -> Assignments:
    """With the values of the secrets that they name. An agent waits for those that are left out."""
    references = secrets_of(assigned)
    if not references:
        return assigned
    try:
        return assigned.model_copy(update={"secrets": await secrets.values(references)})
    except (OSError, SettingsError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        logger.warning("secrets cannot be read, and workers that need them wait: %s", error)
        return assigned


class Assigner:
    def __init__(self, loop: ServiceLoop[State], bus: Client, tokens: ReportTokens, secrets: Secrets) -> None:
        self._loop, self._bus, self._tokens, self._secrets = loop, bus, tokens, secrets
        self._changed: dict[str, None] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._seldom: dict[str, Seldom] = {}
        """By agent: one for each that was ever sent something."""
        loop.on_folded(self._folded)

    async def close(self) -> None:
        for task in list(self._sending.values()):
            await stop_task(task)

    def _folded(self, state: State, events: Sequence[Event]) -> None:
        """Marks the agents; each has at most one message under way, which the next one follows with the then newest state."""
        for agent_id in agents_concerned(state, events):
            self._changed[agent_id] = None
            if agent_id not in self._sending:
                self._sending[agent_id] = asyncio.create_task(self._send_all(agent_id), name=f"assign-{agent_id}")

    async def _send_all(self, agent_id: str) -> None:
        try:
            await self._send(agent_id)
        finally:
            # Here and not in a callback: a change that comes a moment later must find no task, and start one.
            del self._sending[agent_id]

    async def _send(self, agent_id: str) -> None:
        seldom = self._seldom.setdefault(agent_id, Seldom(logger))
        while agent_id in self._changed:
            del self._changed[agent_id]
            told = assignments_of(self._loop.state, agent_id, self._loop.position)
            assigned = with_tokens(told, agent_id, self._tokens)
            try:
                body = (await with_secrets(assigned, self._secrets)).to_json()
                reply = await self._bus.request(subjects.assign(agent_id), body, timeout=ASSIGN_SECONDS_MAX)
                answer = AssignReply.from_json(reply.data)
            except (NatsError, OSError, ValidationError) as error:
                reason = str(error) or type(error).__name__
                seldom.warn(f"agent {agent_id} did not take its assignments now, and gets them with its next heartbeat: {reason}")
            else:
                if answer.accepted:
                    seldom.over()
                else:
                    seldom.warn(f"agent {agent_id} refused its assignments: {answer.reason}")
