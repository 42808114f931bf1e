"""Waiting in tests: for what comes, what cannot come any more, and what never comes."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.support import waiting
from tests.support.waiting import NotCome, ended, until, until_async, until_on_loop


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SECONDS_MAX", 0.1)


def counting() -> Callable[[], int]:
    numbers = itertools.count(1)
    return lambda: next(numbers)


def test_the_first_value_that_holds_is_given() -> None:
    look = counting()
    assert until(look, lambda number: number == 3) == 3
    assert until(lambda: "there") == "there"


def test_a_failure_says_what_was_seen_last(brief: None) -> None:
    with pytest.raises(NotCome, match=r"has not come within 0.1 s; seen last: \{'state': 'active'\}"):
        until(lambda: {"state": "active"}, lambda found: found["state"] == "completed")
    with pytest.raises(NotCome, match=r"x\.\.\. \(5002 characters\)"):
        until(lambda: "x" * 5_000, lambda found: not found)


def test_what_cannot_come_any_more_is_not_waited_for() -> None:
    with pytest.raises(NotCome, match=r"cannot come any more \(the experiment has failed\); seen last: 0"):
        until(lambda: 0, gone=lambda: "the experiment has failed")


def test_what_came_just_before_the_end_is_seen() -> None:
    """It comes after a look, and the end follows at once: the next look is after the end, and finds it."""
    come: list[int] = []
    ends = iter(["", "it has ended"])

    def gone() -> str:
        found = next(ends)
        if found:
            come.append(1)
        return found

    assert until(lambda: list(come), gone=gone) == [1]


def test_an_error_of_the_look_is_no_reason_to_wait() -> None:
    def look() -> bool:
        raise LookupError("no such experiment")

    with pytest.raises(LookupError):
        until(look)


def test_the_end_of_a_process_or_thread() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"])
    with pytest.raises(NotCome, match=f"process {process.pid} has ended with 3"):
        until(lambda: False, gone=ended(process))
    thread = threading.Thread(target=str, name="worker")
    thread.start()
    thread.join()
    with pytest.raises(NotCome, match="thread worker has ended"):
        until(lambda: False, gone=ended(thread))


async def test_the_end_of_a_task() -> None:
    async def fails() -> None:
        raise ValueError("no room")

    task = asyncio.create_task(fails(), name="the relay")
    with pytest.raises(NotCome, match=r"the relay has ended with ValueError\('no room'\)"):
        await until_on_loop(lambda: False, gone=ended(task))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import sys; sys.exit(4)")
    with pytest.raises(NotCome, match="has ended with 4"):
        await until_on_loop(lambda: False, gone=ended(process))
    cancelled = asyncio.create_task(asyncio.sleep(3_600))
    assert not ended(cancelled)()
    cancelled.cancel()
    with pytest.raises(NotCome, match="was cancelled"):
        await until_on_loop(lambda: False, gone=ended(cancelled))
    with pytest.raises(TypeError):
        ended("a name")()


async def test_others_go_on_while_one_waits() -> None:
    told: list[int] = []

    async def tell() -> None:
        for number in range(3):
            await asyncio.sleep(0)
            told.append(number)

    async def ask() -> list[int]:
        return told

    task = asyncio.create_task(tell())
    assert await until_async(ask, lambda found: len(found) == 3) == [0, 1, 2]
    await task


async def test_an_answer_that_never_comes(brief: None) -> None:
    asked = 0

    async def look() -> int:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        return asked

    with pytest.raises(NotCome, match=r"No answer within 0.1 s; seen last: 1"):
        await until_async(look, lambda found: found == 2)


async def test_a_timeout_of_the_look_itself_is_its_own() -> None:
    async def look() -> bool:
        raise TimeoutError("of the client")

    with pytest.raises(TimeoutError, match="of the client"):
        await until_async(look)
