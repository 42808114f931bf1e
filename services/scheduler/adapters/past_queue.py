"""Slots held and trials waiting at an earlier moment: `python -m tenuto.services.scheduler.adapters.past_queue` is a process of
the scheduler that folds the log anew and keeps states on the way."""

from __future__ import annotations

import asyncio
import contextlib

from pydantic import ValidationError

from tenuto.kernel.eventlog import EventLog, LogError
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.past_states import NotYet, Past
from tenuto.kernel.settings import Settings
from tenuto.schemas.queue import PastAnswer, PastQuestion, QueueAnswer
from tenuto.services.scheduler.adapters.question_process import ChildEnded, QuestionProcess, serve
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.explain import agents_answer, queue_answer
from tenuto.services.scheduler.state import State

MODULE = "tenuto.services.scheduler.adapters.past_queue"
FOLD_SECONDS_MAX = 2.0
"""Longest reading of the log for one question; a repeated question finds it read further."""
ANSWER_SECONDS_MAX = 12.0
"""Longest answer: a page of 2,000 events and the pass of a very long queue stay far below."""
IDLE_SECONDS_MAX = 600.0
"""Longest idle time before the process ends: the states of a long log take some hundred megabytes, which are not needed while no
one asks."""
AGENTS_MAX = 1_000
"""Most agents in an answer; a page shows no more."""
NOT_NOW = "The log cannot be read right now; ask again in a few seconds."
UNREADABLE = "The scheduler cannot read this question; run the same version of Tenuto."


def refusal(code: str, message: str) -> PastAnswer:
    return PastAnswer.model_validate({"code": code, "queue": QueueAnswer(pools=(), error=message)})


class PastQueues:
    """Asks the process."""

    def __init__(self, settings: Settings) -> None:
        self._child = QuestionProcess(MODULE, settings)

    async def answer(self, question: bytes) -> bytes:
        try:
            return await self._child.ask(question, ANSWER_SECONDS_MAX)
        except ChildEnded:
            return refusal("unavailable", NOT_NOW).to_json()

    async def stop(self) -> None:
        await self._child.stop()


async def answered(past: Past[State], log: EventLog, data: bytes) -> PastAnswer:
    try:
        question = PastQuestion.from_json(data)
    except ValidationError:
        return refusal("unavailable", UNREADABLE)
    position = question.position
    try:
        found = await log.read(position - 1, 1, upto=position)
        if not found:
            head = await log.head()
            return refusal("not_found", f"There is no position {position} in the log, which ends at {head}.")
        state = await past.at(position, FOLD_SECONDS_MAX)
    except NotYet as error:
        part = error.read_upto / position
        return refusal("unavailable", f"The log is being read up to that moment: {part:.0%} so far. Ask again in a few seconds.")
    except LogError:
        return refusal("unavailable", NOT_NOW)
    time_us = found[0].time_us
    queue = queue_answer(state, question.queue, time_us).model_copy(update={"position": position, "time_us": time_us})
    agents = agents_answer(state, AGENTS_MAX) if question.agents else ()
    return PastAnswer(queue=queue, agents=agents, agents_more=len(state.agents) - len(agents) if question.agents else 0)


async def main() -> None:
    log = await PostgresEventLog.connect(Settings.from_environment().database_url)
    past = Past(SchedulerCore(), log)

    async def answer(data: bytes) -> bytes:
        return (await answered(past, log, data)).to_json()

    try:
        await serve(answer, IDLE_SECONDS_MAX)
    finally:
        await log.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
