"""A worker that makes facts faster than they can be recorded waits for its answers, and so for the record."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.workers.agent import rpc
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.rpc import PACED_REPORTS, WorkerDoor
from tests.support.waiting import SECONDS_MAX


def door(queued: list[int]) -> tuple[Any, Changed]:
    committed = Changed()
    found = cast(Any, WorkerDoor.__new__(WorkerDoor))
    found._manager, found._spool = SimpleNamespace(committed=committed), SimpleNamespace(queued_of=lambda lane, owner: queued[0])
    return found, committed


async def test_a_call_is_answered_when_few_wait_and_not_before() -> None:
    queued = [PACED_REPORTS + 250]
    found, committed = door(queued)
    answer = asyncio.create_task(found._pace("1-1-1"))
    for queued[0] in (PACED_REPORTS + 100, PACED_REPORTS):
        committed.notify()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done()
    queued[0] = PACED_REPORTS - 1
    committed.notify()
    async with asyncio.timeout(SECONDS_MAX):
        await answer


async def test_a_call_is_answered_in_the_end_where_nothing_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "PACE_SECONDS_MAX", 0.05)
    found, _ = door([10**6])
    async with asyncio.timeout(SECONDS_MAX):
        await found._pace("1-1-1")
