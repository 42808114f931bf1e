"""Directories of checkpoints that containers get: trials on other nodes may write into the same store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenuto.kernel.account import Account
from tenuto.kernel.storage.stores import stores_of
from tenuto.schemas.assignments import Assignment
from tenuto.workers.agent.runtimes.docker.checkpoints import checkpoint_binds
from tests.support.control_plane import make_assignment


@pytest.fixture
def assignment() -> Assignment:
    return make_assignment("0" * 64).model_copy(update={"trial_id": "7-1", "allocation_id": "7-1-1"})


def account() -> Account | None:
    return Account("nobody", 65_534, 65_534) if os.geteuid() == 0 else None


def test_the_trials_own_directory_is_made_and_given_to_its_account(tmp_path: Path, assignment: Assignment) -> None:
    for _ in range(2):
        [bind] = checkpoint_binds(stores_of(str(tmp_path), ""), assignment, account())
    found = Path(bind.source)
    assert (found.parts[-2:], bind.target, bind.writable) == (("7", "7-1"), bind.source, True)
    if os.geteuid() == 0:
        assert (found.stat().st_uid, found.stat().st_mode & 0o7777) == (65_534, 0o2770)


@pytest.mark.parametrize("place", ["7", "7/7-1"])
def test_nothing_is_mounted_made_or_changed_by_a_link(tmp_path: Path, assignment: Assignment, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    stores = stores_of(str(tmp_path / "shared"), "")
    [bind] = checkpoint_binds(stores, assignment, None)
    own = Path(bind.source)
    own.rmdir()
    link = own if place == "7/7-1" else own.parent
    if link == own.parent:
        link.rmdir()
    link.symlink_to(elsewhere)
    if os.geteuid() == 0:
        os.chown(link, 12_345, 12_345, follow_symlinks=False)  # whoever has put it there is neither the agent nor its workers
    with pytest.raises(OSError, match="it is a link"):
        checkpoint_binds(stores, assignment, account())
    assert list(elsewhere.iterdir()) == []
    assert (elsewhere.stat().st_uid, elsewhere.stat().st_mode & 0o7777) == (os.geteuid(), 0o755)
