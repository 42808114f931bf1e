"""An agent leaves where its directory was removed, not where it cannot be examined for a moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenuto.workers.agent.directory_watch import DATABASE, LOCK, DirectoryWatch

LOOK_SECONDS = 0.05
"""The first look is at once."""


async def _lost(home: DirectoryWatch) -> str:
    try:
        return await asyncio.wait_for(home.lost(), LOOK_SECONDS)
    except TimeoutError:
        return ""


async def test_files_that_cannot_be_looked_at_are_as_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory, elsewhere = tmp_path / "agent", tmp_path / "elsewhere"
    directory.mkdir()
    for name in (LOCK, DATABASE):
        (directory / name).touch()
    home = DirectoryWatch(directory)
    directory.rename(elsewhere)
    directory.symlink_to(directory)  # an error of the file system for every name below it
    assert await _lost(home) == ""
    assert "cannot be examined" in caplog.text
    directory.unlink()
    elsewhere.rename(directory)
    assert await _lost(home) == ""
    directory.rename(elsewhere)
    assert "was removed or replaced" in await _lost(home)


async def test_files_that_were_replaced_while_they_could_not_be_looked_at_are_found_out(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "agent", tmp_path / "elsewhere"
    directory.mkdir()
    for name in (LOCK, DATABASE):
        (directory / name).touch()
    home = DirectoryWatch(directory)
    directory.rename(elsewhere)
    directory.symlink_to(directory)
    assert await _lost(home) == ""
    directory.unlink()
    directory.mkdir()
    for name in (LOCK, DATABASE):
        (directory / name).touch()
    assert "was removed or replaced" in await _lost(home)
