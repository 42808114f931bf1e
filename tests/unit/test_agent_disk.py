"""Calls to the agent's database whose caller is cancelled: they complete, and damage that they meet is told."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from tenuto.workers.agent.database import Disk
from tests.support.waiting import SECONDS_MAX


async def test_damage_is_told_also_where_the_caller_has_left(caplog: pytest.LogCaptureFixture) -> None:
    disk, begun, go_on = Disk(), threading.Event(), threading.Event()
    told: asyncio.Queue[BaseException] = asyncio.Queue()
    disk.failed = told.put_nowait
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))

    def damaged() -> None:
        begun.set()
        go_on.wait(30)
        raise sqlite3.DatabaseError("file is not a database")

    calling = asyncio.create_task(disk(damaged))
    await asyncio.to_thread(begun.wait, 30)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    go_on.set()
    error = await asyncio.wait_for(told.get(), SECONDS_MAX)
    assert str(error) == "file is not a database"
    await asyncio.to_thread(disk.close)
    del calling, error
    await asyncio.sleep(0)
    assert unheard == []
    assert [record.getMessage() for record in caplog.records] == [
        "a change of the agent's database, whose caller has left, failed: file is not a database"
    ]


async def test_an_error_reaches_its_caller_and_is_told_once() -> None:
    disk, told = Disk(), list[BaseException]()
    disk.failed = told.append

    def damaged() -> None:
        raise sqlite3.DatabaseError("file is not a database")

    with pytest.raises(sqlite3.DatabaseError):
        await disk(damaged)
    assert len(told) == 1
    disk.close()
