"""Files that workers may put below a directory that services read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.kernel.storage.confined_paths import DEPTH_MAX
from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.kernel.storage.store import StoreError
from tests.support.deep_trees import dig


def test_directories_within_each_other_without_end_are_a_problem_of_that_store_alone(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, "3")
    (tmp_path / "3").mkdir()
    dig(tmp_path / "3", DEPTH_MAX)
    assert len(list(store.entries(""))) == 1
    (tmp_path / "3/other").mkdir()
    dig(tmp_path / "3/other", 2 * DEPTH_MAX)
    with pytest.raises(StoreError, match=f"more than {DEPTH_MAX} deep"):
        list(store.entries(""))
    with pytest.raises(StoreError, match=f"more than {DEPTH_MAX} deep"):
        store.delete_unfinished(2**62)
