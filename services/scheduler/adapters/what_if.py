"""Runs a recorded history again under another policy: `python -m tenuto.services.scheduler.adapters.what_if` is a process that
answers one question and ends."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time

from pydantic import ValidationError

from tenuto.kernel.eventlog import READ_EVENTS_MAX, EventLog, LogError
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.kernel.settings import Settings
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.schemas.events.agent import AgentEvent
from tenuto.schemas.events.request import ClusterRequest, RequestEvent
from tenuto.schemas.what_if import WhatIfAnswer, WhatIfQuestion
from tenuto.services.scheduler.adapters.question_process import ChildEnded, ChildLate, QuestionProcess, serve
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.simulation.what_if import NotPossible, what_if

MODULE = "tenuto.services.scheduler.adapters.what_if"
PROCESSOR_SECONDS_MAX = 20.0
"""Longest reading and simulation, in seconds of a processor, so that a busy machine refuses nothing that an idle one finds."""
ANSWER_SECONDS_MAX = 110.0
"""Longest time to an answer, including the start of the process and the transfer of its answer; less than browsers wait."""
CPU_SECONDS_MAX = 30
"""Limit that also holds when the scheduler, which would end the process, is gone."""
FACTS_MAX = 100_000
"""Most events of users and agents that are read, from the log's beginning."""
RUN_POSITIONS_MAX = 300_000
"""Last positions of the log whose trials and allocations are read: those of thousands of trials."""
TOO_LONG = "The simulation takes more than {:.0f} s{}: ask for fewer trials."
FACTS = sorted(
    name for name in SchedulerCore.consumes if issubclass(EVENT_MODELS[name], (RequestEvent, ClusterRequest, AgentEvent))
)
RUNS = (
    "TrialRequested", "TrialStopped", "AllocationGranted", "AllocationPreempted", "AllocationResized", "AllocationReleased",
    "WorkersStarted", "WorkersExited",
)  # fmt: skip


class TooLong(Exception):
    pass


def refusal(code: str, message: str) -> WhatIfAnswer:
    return WhatIfAnswer.model_validate({"code": code, "error": message})


class WhatIfs:
    """Starts the process, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, question: bytes) -> bytes:
        child = QuestionProcess(MODULE, self._settings)
        try:
            return await child.ask(question, ANSWER_SECONDS_MAX)
        except ChildLate:
            return refusal("conflict", TOO_LONG.format(ANSWER_SECONDS_MAX, "")).to_json()
        except ChildEnded:
            return refusal("unavailable", "The process of the simulation ended: ask for fewer trials.").to_json()
        finally:
            await child.stop()


async def read(log: EventLog, upto: int | None) -> list[Event]:
    """Events that a script is made of, in order. Raises NotPossible, LogError."""
    head = await log.head()
    upto = head if upto is None else upto
    if upto > head:
        raise NotPossible("not_found", f"There is no position {upto} in the log, which ends at {head}.")
    facts = await _all(log, 0, upto, FACTS, FACTS_MAX)
    if len(facts) > FACTS_MAX:
        raise NotPossible("conflict", f"The log has over {FACTS_MAX:,} requests and joins of agents: name an earlier moment.")
    runs = await _all(log, max(0, upto - RUN_POSITIONS_MAX), upto, RUNS, RUN_POSITIONS_MAX)
    return sorted([*facts, *runs], key=lambda event: event.position)


async def _all(log: EventLog, after: int, upto: int, types: list[str] | tuple[str, ...], most: int) -> list[Event]:
    found: list[Event] = []
    while len(found) <= most:
        page = await log.read(after, READ_EVENTS_MAX, upto=upto, types=types)
        found += page
        if not page.more:
            break
        after = page[-1].position
    return found


async def answered(log: EventLog, data: bytes) -> WhatIfAnswer:
    until = time.process_time() + PROCESSOR_SECONDS_MAX

    def observer(_: EventData) -> None:
        if time.process_time() > until:
            raise TooLong

    try:
        question = WhatIfQuestion.from_json(data)
        events = await read(log, question.upto)
        if not events:
            raise NotPossible("not_found", f"No agent of pool {question.pool} had joined by then.")
        return what_if(events, question, observer)
    except ValidationError:
        return refusal("unavailable", "The scheduler cannot read this question; run the same version of Tenuto.")
    except NotPossible as error:
        return refusal(error.code, str(error))
    except LogError:
        return refusal("unavailable", "The log cannot be read right now; ask again in a few seconds.")
    except TooLong:
        return refusal("conflict", TOO_LONG.format(PROCESSOR_SECONDS_MAX, " of a processor"))


async def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    log = await PostgresEventLog.connect(Settings.from_environment().database_url)

    async def answer(data: bytes) -> bytes:
        return (await answered(log, data)).to_json()

    try:
        await serve(answer, idle_seconds=ANSWER_SECONDS_MAX)
    finally:
        await log.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
