"""Archives sent by one user delay nobody else: real reading processes, and archives that are never read to their end."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest

from tenuto.services.gateway.http.fair_queue import Turns
from tenuto.services.gateway.reader.reader import WAITING_PER_USER_MAX, ReaderBusy, UserFileReader

CONFIG = b"""
name: digits
entrypoint: model_def:Trial
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {batches: 100}}
"""
ANSWER_SECONDS_MAX = 30.0
"""Half of what an archive may take: whoever waits for one to be given up comes too late."""


async def test_a_user_whose_archives_take_for_ever_holds_up_nobody(tmp_path: Path) -> None:
    endless, whole = tmp_path / "endless", tmp_path / "whole"
    os.mkfifo(endless)  # its reader waits for a writer that never comes
    with tarfile.open(whole, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("model_def.py"), io.BytesIO())
    reader = UserFileReader()
    slow = [asyncio.create_task(reader.archive(endless, "mallory")) for _ in range(WAITING_PER_USER_MAX)]
    try:
        await asyncio.sleep(0)  # all of them have asked
        with pytest.raises(ReaderBusy):
            await reader.archive(whole, "mallory")
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            draft = await reader.config(CONFIG, "alice")
            assert draft.config is not None
            assert draft.config.name == "digits"
            assert await reader.archive(whole, "alice") == {"model_def.py"}
            assert await reader.archive(whole, "bob") == {"model_def.py"}
        assert not any(task.done() for task in slow)
    finally:
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await reader.stop()


async def test_users_go_in_turn_and_a_place_comes_back_however_its_holder_ends() -> None:
    turns, order, go_on = Turns(of_one_user=1, at_once=1), list[str](), asyncio.Event()

    async def work(user: str) -> None:
        async with turns.turn(user):
            order.append(user)
            await go_on.wait()

    tasks = [asyncio.create_task(work(user)) for user in ("mallory", "mallory", "mallory", "alice", "bob", "alice")]
    await asyncio.sleep(0)
    assert order == ["mallory"]
    tasks[1].cancel()  # waits
    tasks[0].cancel()  # holds the place
    await asyncio.sleep(0)
    tasks[3].cancel()
    go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order[0] == "mallory"
    assert sorted(order[1:]) in (["alice", "bob", "mallory"], ["alice", "alice", "bob", "mallory"])
    assert order.index("bob") < 4
    async with asyncio.timeout(ANSWER_SECONDS_MAX), turns.turn("carol"):
        pass


async def test_a_user_holds_no_more_places_than_one_may() -> None:
    turns, holding, most = Turns(of_one_user=2), 0, 0

    async def work() -> None:
        nonlocal holding, most
        async with turns.turn("mallory"):
            holding += 1
            most = max(most, holding)
            await asyncio.sleep(0)
            holding -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 2
