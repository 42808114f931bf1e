"""Contexts on an agent's disk: brought once for all trials that run them, and removed when others were used since."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tenuto.workers.agent import contexts
from tenuto.workers.agent.archives import ContextUnavailable
from tenuto.workers.agent.contexts import Contexts


def packed(number: int) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        content = f"NUMBER = {number}".encode()
        item = tarfile.TarInfo("model_def.py")
        item.size = len(content)
        tar.addfile(item, io.BytesIO(content))
    return data.getvalue()


class Sender:
    """Archives that are far away: each is written when it is asked for, and gone afterwards."""

    def __init__(self, directory: Path, *archives: bytes) -> None:
        self._directory = directory
        self._archives = {hashlib.sha256(archive).hexdigest(): archive for archive in archives}
        self.sent: list[tuple[str, str]] = []

    @property
    def hashes(self) -> list[str]:
        return [*self._archives]

    @contextlib.asynccontextmanager
    async def of(self, context_hash: str, allocation_id: str, wanted: Callable[[], bool]) -> AsyncIterator[Path]:
        self.sent.append((context_hash, allocation_id))
        await asyncio.sleep(0)
        if context_hash not in self._archives:
            raise ContextUnavailable("There is none.")
        path = self._directory / f"{allocation_id}.tar.gz"
        path.write_bytes(self._archives[context_hash])
        yield path
        path.unlink()


def made(tmp_path: Path, count: int) -> tuple[Sender, Contexts]:
    sender = Sender(tmp_path, *(packed(number) for number in range(count)))
    return sender, Contexts(sender, tmp_path / "contexts")


async def test_a_context_is_sent_and_unpacked_once_for_all_trials_that_run_it(tmp_path: Path) -> None:
    sender, found = made(tmp_path, 2)
    first, other = sender.hashes
    paths = await asyncio.gather(*(found.unpack(first, f"1-{trial}-1") for trial in range(1, 9)))
    assert set(paths) == {found.path(first)}
    assert (found.path(first) / "model_def.py").read_text() == "NUMBER = 0"
    assert sender.sent == [(first, "1-1-1")], "eight trials, one transfer"
    await found.unpack(other, "2-1-1")
    await found.unpack(first, "1-1-2")
    await Contexts(sender, tmp_path / "contexts").unpack(first, "1-2-2")
    assert sender.sent == [(first, "1-1-1"), (other, "2-1-1")], "nor again when a trial goes on, or the agent was started anew"


async def test_a_context_that_did_not_come_is_asked_for_again(tmp_path: Path) -> None:
    sender, found = made(tmp_path, 0)
    for _ in range(2):
        with pytest.raises(ContextUnavailable):
            await found.unpack("0" * 64, "1-1-1")
    assert len(sender.sent) == 2
    assert not found.path("0" * 64).exists()


async def test_the_least_recently_used_contexts_are_removed_but_none_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "CONTEXTS_KEPT_MAX", 2)
    sender, found = made(tmp_path, 5)
    for place, name in enumerate(sender.hashes):
        path = await found.unpack(name, "1-1-1")
        os.utime(path, (place, place))  # as if they were unpacked one after the other, long ago
    running, again, removed, _, last = sender.hashes
    await found.unpack(again, "1-1-2")  # which makes it the most recently used one
    found.prune([running])
    left = {path.name for path in (tmp_path / "contexts").iterdir()}
    assert left == {running, again, last}
    found.prune([])
    assert {path.name for path in (tmp_path / "contexts").iterdir()} == {again, last}
    before = len(sender.sent)
    await found.unpack(removed, "1-1-3")
    assert len(sender.sent) == before + 1, "one that was removed is sent again"


def test_there_is_nothing_to_remove_before_the_first(tmp_path: Path) -> None:
    made(tmp_path, 1)[1].prune([])
    assert not (tmp_path / "contexts").exists()
