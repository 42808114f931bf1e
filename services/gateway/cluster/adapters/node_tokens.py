"""Join tokens of nodes that a provisioner starts: made when the launcher asks, told to it alone, kept as a hash."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from uuid import uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.schemas import subjects
from tenuto.schemas.join_tokens import JoinToken
from tenuto.schemas.joining import hash_of
from tenuto.schemas.node_tokens import NodeTokenAnswer, NodeTokenQuestion
from tenuto.services.gateway.cluster.commands import CreateNodeToken
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.http import tokens

logger = logging.getLogger(__name__)

QUESTIONS_AT_ONCE = 32
"""More than the launcher asks at once."""
NO_KEEPER = "The gateway of this cluster cannot change the bus's users, so nodes cannot join: set its TENUTO_BUS_USERS_DIRECTORY."


class NodeTokens:
    def __init__(
        self,
        bus: Client,
        loop: ServiceLoop[ClusterState],
        clock: Clock,
        address: Callable[[], str],
        fingerprint: str,
        *,
        can_admit: bool,
    ) -> None:
        """`address`: of the gateway, as nodes reach it. `can_admit`: agents can be given credentials on the bus."""
        self._bus, self._loop, self._clock, self._address = bus, loop, clock, address
        self._fingerprint, self._can_admit = fingerprint, can_admit
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answers until cancelled."""
        await self._loop.wait_ready()
        asked = await self._bus.subscribe(subjects.NODE_TOKENS, cb=self._asked)
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(NatsError):
                await asked.unsubscribe()

    async def _asked(self, message: Msg) -> None:
        if len(self._tasks) >= QUESTIONS_AT_ONCE:
            await _reply(message, NodeTokenAnswer(error="The gateway makes other tokens; ask again."))
            return
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        try:
            answer = await self._made(NodeTokenQuestion.from_json(message.data))
        except ValidationError:
            answer = NodeTokenAnswer(error="The question cannot be read; run the same version of Tenuto.")
        except (Refused, LogUnavailable) as error:
            answer = NodeTokenAnswer(error=str(error))
        await _reply(message, answer)

    async def _made(self, question: NodeTokenQuestion) -> NodeTokenAnswer:
        if not self._can_admit:
            return NodeTokenAnswer(error=NO_KEEPER)
        secret, token_id, now_us = tokens.make(), f"jt-{uuid4().hex[:12]}", self._clock.now_us()
        command = CreateNodeToken(
            id=self._clock.new_id(),
            time_us=now_us,
            token_id=token_id,
            secret_hash=hash_of(secret),
            node_id=question.node_id,
            pool=question.pool,
            expires_us=now_us + round(question.seconds * 1e6),
        )
        await self._loop.submit(command)
        token = JoinToken(url=self._address(), fingerprint=self._fingerprint, id=token_id, secret=secret)
        return NodeTokenAnswer(token=token.written())


async def _reply(message: Msg, answer: NodeTokenAnswer) -> None:
    with contextlib.suppress(NatsError):  # the requester is disconnected
        await message.respond(answer.to_json())
