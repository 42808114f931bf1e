"""Removal of directories that trials have filled, with ill will or without."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.kernel.tree_removal import remove_tree
from tenuto.services.launcher.adapters.provisioners.ssh import host
from tests.support.deep_trees import dig

DEEP = 3_000
ACCOUNT = 65_534


@pytest.mark.parametrize("remove", [remove_tree, host.remove])
def test_no_depth_is_too_deep_and_none_costs_a_descriptor(tmp_path: Path, remove: Callable[[str], None]) -> None:
    """`host.remove` is what a machine reached by SSH does when nothing of ours is there."""
    top = tmp_path / "run"
    top.mkdir()
    dig(top, DEEP)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        remove(str(top))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not top.exists()


def test_what_a_tree_may_hold(tmp_path: Path) -> None:
    top, kept = tmp_path / "run", tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for name in ("1", "2/1", "2/2/1", "2/3/2", "a/b/1/2/3"):
        (top / name).mkdir(parents=True)
        (top / name / "file").touch()
    (top / "link").symlink_to(kept)
    (top / "a" / "b" / "link").symlink_to(kept)
    (top / "loop").symlink_to(top)
    os.mkfifo(top / "a" / "pipe")
    remove_tree(top)
    assert list(tmp_path.iterdir()) == [kept]
    assert list(kept.iterdir()) == [kept / "file"]


def test_a_link_or_a_file_in_its_place_is_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "file").touch()
    for name in ("link", "file", "absent"):
        remove_tree(tmp_path / name)
    assert (kept / "inside").is_dir()


def test_directories_that_their_owner_has_closed(tmp_path: Path) -> None:
    top = tmp_path / "run"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "c" / "file").touch()
    for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top):
        path.chmod(0)
    if os.geteuid() == 0:  # as another account, which has no more rights than these
        for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top, tmp_path):
            os.chown(path, ACCOUNT, ACCOUNT)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(ACCOUNT)
                os.setuid(ACCOUNT)
            remove_tree("run")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not top.exists()
