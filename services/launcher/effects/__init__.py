"""Tells agents what they should have now, as soon as it changed.

What is sent is the whole present state of one agent's assignments, never an order: it may be lost (the next heartbeat's answer
repairs it), repeated, or sent by a launcher that has started again, and needs no memory of what was sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from nats.aio.client import Client
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.report_tokens import ReportTokens
from tenuto.kernel.secrets import Secrets
from tenuto.kernel.settings import SettingsError
from tenuto.kernel.storage.store import StoreError
from tenuto.kernel.storage.stores import Stores, needed_stores
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Assignment, Assignments, AssignReply
from tenuto.schemas.envelope import Event
from tenuto.services.launcher.effects.assigning import agents_concerned, assignments_of, secrets_of
from tenuto.services.launcher.state import State

logger = logging.getLogger(__name__)

ASSIGN_SECONDS_MAX = 2.0
"""Longest wait for an agent's answer, which it gives once its disk has the assignment: milliseconds. Beyond this the next
heartbeat delivers it."""
SECRETS_SECONDS_MAX = 1.0
"""Longest wait for the database's answer. Without a bound, a database that hangs would keep heartbeats from being answered."""


class Assigned:
    """Parts of an agent's assignments that are in no state or event: the tokens of its reports, the secrets of its gangs,
    the values of its trials' secrets, and the declarations of their stores."""

    def __init__(self, tokens: ReportTokens, secrets: Secrets, stores: Stores) -> None:
        self._tokens, self._secrets, self._stores = tokens, secrets, stores
        self._seldom: dict[str, Seldom] = {}
        """Warnings by agent, for agents whose secrets could not be read last time."""

    async def completed(self, assigned: Assignments, agent_id: str) -> Assignments:
        """Assignments with all parts. Secrets that cannot be read now are left out: the workers that need them wait, and all else
        goes on."""
        ids = [assignment.allocation_id for assignment in assigned.assignments]
        assignments = tuple(map(self._with_gang_secret, assigned.assignments))
        known = {"tokens": self._tokens.tokens(agent_id, ids), "stores": self._declarations(assigned, agent_id)}
        assigned = assigned.model_copy(update={"cluster": self._tokens.cluster, "assignments": assignments, **known})
        references = secrets_of(assigned)
        if not references:
            self._seldom.pop(agent_id, None)
            return assigned
        try:
            async with asyncio.timeout(SECRETS_SECONDS_MAX):
                values = await self._secrets.values(references)
        except (*DATABASE_FAILED, SettingsError) as error:
            self._warn(agent_id, f"secrets cannot be read: {str(error) or type(error).__name__}")
            return assigned
        if missing := ", ".join(reference for reference in references if reference not in values):
            self._warn(agent_id, f"secrets were removed, or stored with another key: {missing}")
        else:
            self._seldom.pop(agent_id, None)
        return assigned.model_copy(update={"secrets": values})

    def _declarations(self, assigned: Assignments, agent_id: str) -> str:
        """Declarations of the stores that these assignments name; none of others. The directory that services share is none."""
        names = {name for assignment in assigned.assignments for name in needed_stores(assignment)}
        try:
            found = self._stores.handed_out(names)
        except StoreError as error:
            self._warn(agent_id, f"stores cannot be read: {error}")
            return ""
        return "" if found == b"{}" else found.decode()

    def _with_gang_secret(self, assignment: Assignment) -> Assignment:
        if len(assignment.slots) < 2:
            return assignment
        return assignment.model_copy(update={"gang_secret": self._tokens.gang_secret(assignment.allocation_id)})

    def _warn(self, agent_id: str, why: str) -> None:
        self._seldom.setdefault(agent_id, Seldom(logger)).warn(f"workers on agent {agent_id} may lack what they need: {why}")


class Assigner:
    def __init__(self, loop: ServiceLoop[State], bus: Client, assigned: Assigned) -> None:
        self._loop, self._bus, self._assigned = loop, bus, assigned
        self._changed: dict[str, None] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._seldom: dict[str, Seldom] = {}
        """Warnings by agent, for agents that did not accept what was last sent to them."""
        loop.on_folded(self._folded)

    async def close(self) -> None:
        for task in list(self._sending.values()):
            await stop_task(task)

    def _folded(self, state: State, events: Sequence[Event]) -> None:
        """Marks agents whose assignments changed. Each has at most one message under way; the next one then has the newest
        state."""
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
        while agent_id in self._changed:
            del self._changed[agent_id]
            assigned = assignments_of(self._loop.state, agent_id, self._loop.position)
            body = (await self._assigned.completed(assigned, agent_id)).to_json()
            try:
                reply = await self._bus.request(subjects.assign(agent_id), body, timeout=ASSIGN_SECONDS_MAX)
                answer = AssignReply.from_json(reply.data)
            except (NatsError, OSError, ValidationError) as error:
                reason = str(error) or type(error).__name__
                self._warn(agent_id, f"did not take its assignments now, and gets them with its next heartbeat: {reason}")
            else:
                if answer.accepted:
                    self._seldom.pop(agent_id, None)
                else:
                    self._warn(agent_id, f"refused its assignments: {answer.reason}")

    def _warn(self, agent_id: str, what: str) -> None:
        gone = [name for name in self._seldom if name not in self._loop.state.agents]
        for name in gone:
            del self._seldom[name]
        self._seldom.setdefault(agent_id, Seldom(logger)).warn(f"agent {agent_id} {what}")
