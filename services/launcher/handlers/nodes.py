"""Questions about nodes, over the bus: whether a pool's provisioner has what it needs, and what a node has printed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.schemas import subjects
from tenuto.schemas.node_questions import CheckFinding, DemandStanding, NodesAnswer, NodesQuestion, NodeWords
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding, ProvisionerError, check_known, no_images
from tenuto.services.launcher.effects.keepers import Keepers
from tenuto.services.launcher.effects.nodes import bounded

logger = logging.getLogger(__name__)

QUESTIONS_AT_ONCE = 8
"""Most questions in work: each may hold a connection to a provider for a minute."""
ANSWER_SECONDS_MAX = 50.0
"""Longest time for one answer: less than the gateway waits."""
WORDS_MAX = 20
"""Most waiting nodes whose provider's messages are told: if more wait, they wait for the same reason."""
TROUBLE_CHARACTERS_MAX = 1_000
"""Most of a provider's error in an answer: it is a sentence, and some libraries quote whole documents."""
LOG_CHARACTERS_MAX = 500_000
"""Most of a log in one answer: the bus takes messages of a megabyte, and a character may be four bytes in JSON."""


class NodeQuestions:
    def __init__(
        self,
        bus: Client,
        keepers: Keepers,
        provisioning_of: Callable[[str], Provisioning | None],
        standings_of: Callable[[str], tuple[DemandStanding, ...]],
    ) -> None:
        """`provisioning_of`, `standings_of`: of a pool on record."""
        self._bus, self._keepers, self._provisioning_of, self._standings_of = bus, keepers, provisioning_of, standings_of
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answers until cancelled."""
        asked = await self._bus.subscribe(subjects.NODES, cb=self._asked)
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(NatsError):
                await asked.unsubscribe()

    async def _asked(self, message: Msg) -> None:
        if len(self._tasks) >= QUESTIONS_AT_ONCE:
            await _reply(message, NodesAnswer(error="The launcher answers other such questions; ask again.", code="unavailable"))
            return
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        try:
            question = NodesQuestion.from_json(message.data)
        except ValidationError:
            await _reply(message, NodesAnswer(error="The question cannot be read; run the same version of Tenuto."))
            return
        try:
            answer = await self._found(question)
        except ProvisionerError as error:
            answer = NodesAnswer(error=str(error), code="unavailable" if error.kind == "unreachable" else "")
        except Exception as error:
            logger.exception("a question about nodes was not answered")
            answer = NodesAnswer(
                error=f"The launcher could not answer: {type(error).__name__}; its log says more.", code="unavailable"
            )
        await _reply(message, answer)

    async def _found(self, question: NodesQuestion) -> NodesAnswer:
        if question.about == "standings":
            return NodesAnswer(
                standings=self._standings_of(question.pool),
                words=words_of(self._keepers, question.pool),
                trouble=self._keepers.trouble_of(question.pool)[:TROUBLE_CHARACTERS_MAX],
            )
        if question.about == "known":
            return _known(question)
        if question.about == "check":
            return await self._check(question)
        for keeper in self._keepers.of(question.pool):
            for node in await bounded(keeper.provisioner.nodes(), ANSWER_SECONDS_MAX):
                if node.node_id == question.node_id:
                    logs = await bounded(keeper.provisioner.logs(node, question.lines_max), ANSWER_SECONDS_MAX)
                    return NodesAnswer(logs=logs[-LOG_CHARACTERS_MAX:])
        return NodesAnswer(
            error=f"The provider of pool {question.pool} has no node {question.node_id} (any more).", code="not_found"
        )

    async def _check(self, question: NodesQuestion) -> NodesAnswer:
        provisioning = question.provisioning or self._provisioning_of(question.pool)
        if provisioning is None:
            return NodesAnswer(error=f"Pool {question.pool} has no provisioner.", code="not_found")
        provisioner = self._keepers.open_provisioner(question.pool, provisioning)
        try:
            findings = await bounded(provisioner.check(), ANSWER_SECONDS_MAX)
        finally:
            await provisioner.close()
        unfit = no_images(provisioning, provisioner)
        findings = [*findings, Finding("images of trials", unfit)] if unfit else findings
        return NodesAnswer(findings=tuple(CheckFinding(what=item.what, problem=item.problem) for item in findings))


def _known(question: NodesQuestion) -> NodesAnswer:
    try:
        if question.provisioning is not None:
            check_known(question.provisioning.provisioner)
    except ProvisionerError as error:
        return NodesAnswer(error=str(error), code="not_found")
    return NodesAnswer()


def words_of(keepers: Keepers, pool: str) -> tuple[NodeWords, ...]:
    """Each node once: keepers of earlier settings often see the nodes of later ones, too, such as pods of one namespace."""
    told = {
        node.node_id: node.detail
        for keeper in reversed(keepers.of(pool))
        for node in keeper.seen
        if node.detail and node.phase != "ended"
    }
    return tuple(NodeWords(node_id=name, words=words) for name, words in list(told.items())[:WORDS_MAX])


async def _reply(message: Msg, answer: NodesAnswer) -> None:
    with contextlib.suppress(NatsError):  # the client is gone
        await message.respond(answer.to_json())
