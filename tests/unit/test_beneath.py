"""Files that workers may put below a directory that services read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenuto.kernel.storage.beneath import DEPTH_MAX
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.store import StoreError


def nest(directory: Path, levels: int) -> None:
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


def test_directories_within_each_other_without_end_are_a_problem_of_that_store_alone(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "3")
    (tmp_path / "3").mkdir()
    nest(tmp_path / "3", DEPTH_MAX)
    assert len(list(store.entries(""))) == 1
    (tmp_path / "3/other").mkdir()
    nest(tmp_path / "3/other", 2 * DEPTH_MAX)
    with pytest.raises(StoreError, match=f"more than {DEPTH_MAX} deep"):
        list(store.entries(""))
    with pytest.raises(StoreError, match=f"more than {DEPTH_MAX} deep"):
        store.delete_unfinished(2**62)
