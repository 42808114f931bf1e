"""Copies of PostgreSQL's programs and unfinished databases that killed starts left: removed, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tenuto.embedded import postgres_home
from tenuto.embedded.postgres_home import UNFINISHED_SECONDS_MAX, _copy_name, _namespace, _sweep


def test_unfinished_ones_are_removed_when_they_are_old(tmp_path: Path) -> None:
    for name in ("postgres-new-a", "cluster-a/cluster.new", "cluster-b/cluster/base", "cluster-c/other", "unknown"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cluster-d").mkdir()
    (tmp_path / "cluster-d/cluster").symlink_to("/mnt/a disk that is not mounted")
    _sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 6
    before = time.time() - 2 * UNFINISHED_SECONDS_MAX
    for path in tmp_path.iterdir():
        os.utime(path, (before, before))
    _sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"cluster-b", "cluster-c", "cluster-d", "unknown"}


def test_a_copy_goes_with_its_original_unless_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, installed = tmp_path / "home", tmp_path / "installed"
    installed.mkdir()
    copy, other = home / _copy_name(installed), home / "postgres-1-2-3"
    for path, namespace in ((copy, _namespace()), (other, "pid:[1]")):
        path.mkdir(parents=True)
        (path / "source").write_text(f"{installed}\n{namespace}\n")
        shutil.copy(shutil.which("sleep") or "", path / "postgres")
    _sweep(home)
    assert copy.exists()
    installed.rename(tmp_path / "upgraded")
    server = subprocess.Popen([copy / "postgres", "600"])
    try:
        _sweep(home)
        assert copy.exists(), "a server runs"
    finally:
        server.kill()
        server.wait()
    _sweep(home)
    assert not copy.exists()
    assert other.exists(), "of a container, whose files and processes are not seen from here"


def test_a_variable_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres_home.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(postgres_home, "reachable", lambda *_: True)
    account = postgres_home.pwd.getpwuid(os.getuid())
    assert postgres_home.root_home(account) == tmp_path / "home"
