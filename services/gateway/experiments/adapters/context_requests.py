"""Requests of agents for contexts, over the bus. The subject tells which agent asks, and a token which allocations it has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import asyncpg
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.report_tokens import ReportTokens, load_report_tokens
from tenuto.schemas import subjects
from tenuto.schemas.contexts import HEADER_REFUSED, HEADER_SIZE, PIECE_BYTES, ContextRequest
from tenuto.schemas.ids import experiment_of

logger = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 4
"""Most requests of one agent that are answered at the same time, so that an agent that sends many leaves room for the others.
An agent of ours sends one after the other."""
_LOOK = """SELECT e.context_hash, a.released_us IS NOT NULL AS released FROM experiments e
           LEFT JOIN allocations a ON a.allocation_id = $2 WHERE e.experiment_id = $1"""


class ContextServer:
    """Hands agents the model directories of their own allocations, in pieces."""

    def __init__(self, bus: Client, pool: asyncpg.Pool, directory: Path) -> None:
        self._bus, self._pool, self._directory = bus, pool, directory
        self._tokens: ReportTokens | None = None
        self._answering: dict[str, int] = {}
        """Number of requests in work, by agent."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.listening = asyncio.Event()
        """Set once this end has subscribed to what agents ask for."""

    async def run(self) -> None:
        """Answers until cancelled."""
        self._tokens = await load_report_tokens(self._pool)
        asked = await self._bus.subscribe(subjects.CONTEXTS, cb=self._asked)
        try:
            self.listening.set()
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(NatsError):
                await asked.unsubscribe()

    async def _asked(self, message: Msg) -> None:
        agent_id = subjects.agent_of(message.subject)
        if self._answering.get(agent_id, 0) >= REQUESTS_AT_ONCE:
            await _refuse(message, "This agent asks for too much at once.")
            return
        self._answering[agent_id] = self._answering.get(agent_id, 0) + 1
        task = asyncio.create_task(self._answer(agent_id, message))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._answered(agent_id, done))

    def _answered(self, agent_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._answering[agent_id] -= 1
        if not self._answering[agent_id]:
            del self._answering[agent_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a request of agent %s for a context was not answered: %s", agent_id, error, exc_info=error)

    async def _answer(self, agent_id: str, message: Msg) -> None:
        try:
            request = ContextRequest.from_json(message.data)
        except ValidationError:
            await _refuse(message, "The request cannot be read; run the same version of Tenuto.")
            return
        try:
            found = await self._find(agent_id, request)
            if isinstance(found, str):
                await _refuse(message, found)
                return
            size, piece = await asyncio.to_thread(_read, found, request.offset)
        except FileNotFoundError:
            await _refuse(message, "The model directory is gone from the gateway's directory of contexts.")
        except DATABASE_FAILED as error:
            logger.warning("agent %s cannot be given a context: %s", agent_id, error)
            await _refuse(message, "The gateway cannot read the model directory now.")
            return
        await _send(message, piece, {HEADER_SIZE: str(size)})

    async def _find(self, agent_id: str, request: ContextRequest) -> Path | str:
        """Archive that the allocation runs, or why it is not given. One answer for all that is not this agent's."""
        assert self._tokens is not None
        experiment_id = experiment_of(request.allocation_id)
        if not self._tokens.fits(request.token, agent_id, request.allocation_id):
            return f"Allocation {request.allocation_id} is not this agent's."
        row = await self._pool.fetchrow(_LOOK, experiment_id, request.allocation_id)
        if row is None:  # the views are behind the log, or the experiment was deleted
            return f"Experiment {experiment_id} is not known to the gateway (yet)."
        if row["released"]:
            return f"Allocation {request.allocation_id} has ended."
        return self._directory / f"{row['context_hash']}.tar.gz"


async def _refuse(message: Msg, why: str) -> None:
    await _send(message, b"", {HEADER_REFUSED: why})


async def _send(message: Msg, body: bytes, headers: dict[str, str]) -> None:
    message.headers = headers  # of the answer
    with contextlib.suppress(NatsError):  # lost, or without an address; the agent asks again
        await message.respond(body)


def _read(archive: Path, offset: int) -> tuple[int, bytes]:
    """Size of the archive, and a piece of it. Raises OSError."""
    with archive.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(offset)
        return size, file.read(PIECE_BYTES)
