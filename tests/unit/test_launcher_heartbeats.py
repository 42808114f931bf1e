"""The launcher's handling of heartbeats: those that a busy agent sends twice, and the last one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Assignments, Heartbeat, HeartbeatReply
from tenuto.services.launcher.handlers import Listener
from tenuto.services.launcher.handlers.agent_rate_limits import CHANGES_MAX, Paces
from tenuto.services.launcher.handlers.leases import Leases
from tenuto.services.launcher.state import initial

HEARTBEAT = Heartbeat(agent_id="a", spool_id="s", pool="default", host="h", version="1", slots=(), allocations=())


@pytest.mark.parametrize("repeated", [True, False])
async def test_a_repeated_heartbeat_is_a_sign_of_life_and_says_nothing_of_what_runs(repeated: bool) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    said: list[Any] = []
    listener = cast(Any, Listener.__new__(Listener))
    listener._settings, listener._clock, listener._leases = Settings(), clock, Leases(10.0, 1.0)
    listener._backlogs = SimpleNamespace(hear=lambda *what: said.append(what))
    listener._loop = SimpleNamespace(state=initial())
    listener._caught_up = SimpleNamespace(is_set=lambda: False)

    async def respond(body: bytes) -> None:
        said.append(body)

    for clock.now in range(15):
        assert listener._leases.look(["a"], clock.now, connected=True) == []
        if clock.now == 8:
            body = HEARTBEAT.model_copy(update={"repeated": repeated}).to_json()
            await listener._on_heartbeat(SimpleNamespace(data=body, subject=subjects.heartbeat("a"), respond=respond))
    assert bool(said) is not repeated
    clock.now += 1
    for clock.now in range(15, 19):
        lost = listener._leases.look(["a"], clock.now, connected=True)
    assert lost == ["a"]


@pytest.mark.parametrize("paced", [True, False])
async def test_that_an_agent_is_gone_is_answered_with_assignments_only_once_it_is_on_record(paced: bool) -> None:
    """Or the agent would end, and its lease would have to be waited for."""
    writable = asyncio.Event()
    recorded: list[bool] = []
    listener = cast(Any, Listener.__new__(Listener))
    listener._settings, listener._clock, listener._leases = Settings(), SystemClock(), Leases(10.0, 1.0)
    listener._backlogs, listener._caught_up = SimpleNamespace(hear=lambda *_: None), SimpleNamespace(is_set=lambda: True)
    listener._received, listener._answering, listener._paces = {}, {}, Paces(2.0)
    listener._warn = lambda _: None

    async def submit(command: Any) -> None:
        await writable.wait()
        recorded.append(command.heartbeat.gone)

    async def completed(assignments: Assignments, _: str) -> Assignments:
        return assignments

    listener._loop = SimpleNamespace(state=initial(), position=0, submit=submit, core=SimpleNamespace(decide=lambda *_: [True]))
    listener._assigned = SimpleNamespace(completed=completed)

    async def send(*, gone: bool) -> list[HeartbeatReply]:
        answers: list[HeartbeatReply] = []

        async def respond(body: bytes) -> None:
            answers.append(HeartbeatReply.from_json(body))

        body = HEARTBEAT.model_copy(update={"gone": gone}).to_json()
        await listener._on_heartbeat(SimpleNamespace(data=body, subject=subjects.heartbeat("a"), respond=respond))
        return answers

    if paced:
        writable.set()
        for _ in range(CHANGES_MAX):
            assert listener._paces.take("a", listener._clock.monotonic())
        asked = await send(gone=True)
        await asyncio.gather(*listener._answering.values())
        assert ([answer.assignments for answer in asked], recorded) == ([None], [])
        return
    earlier = await send(gone=False)
    asked = await send(gone=True)
    assert ([answer.assignments for answer in asked], earlier) == ([None], [])
    writable.set()
    await asyncio.gather(*listener._answering.values())
    again = await send(gone=True)
    await asyncio.gather(*listener._answering.values())
    assert again[0].assignments is not None
    assert recorded == [False, True]
