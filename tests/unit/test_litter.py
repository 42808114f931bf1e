"""What tests leave is found, and cleared; what belongs to a run that goes on is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import janitor, litter
from tests.support.janitor import Owner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def gone() -> Owner:
    """A process that has ended."""
    return replace(Owner.this(), started="1")


def directory_of(owner: Owner, temporary: Path, name: str) -> Path:
    path = temporary / f"{litter.PREFIX}{name}"
    (path / "below").mkdir(parents=True)
    (path / litter.OWNER).write_text(str(owner))
    return path


def test_what_was_left_behind_is_named(tmp_path: Path) -> None:
    directory_of(Owner.this(), tmp_path, "before")
    before = litter.snapshot(tmp_path)
    assert not [line for line in litter.left_behind(before, tmp_path) if str(tmp_path) in line], "others do something meanwhile"
    living = directory_of(Owner.this(), tmp_path, "living")
    (living / litter.OUTSIDE).write_text(f"file {tmp_path}/of-a-living-run\n")
    (tmp_path / "of-a-living-run").touch()
    dead = directory_of(gone(), tmp_path, "dead")
    (tmp_path / "file").touch()
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, gone().variable: gone().started})
    try:
        found = litter.left_behind(before, tmp_path)
        expected = {f"temporary file {dead}", f"temporary file {tmp_path}/file", f"process {left.pid} sleep 600"}
        assert expected <= set(found)
        assert not [line for line in found if "living" in line]
    finally:
        left.kill()
        left.wait()


def test_only_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    dead, living = directory_of(gone(), tmp_path, "dead"), directory_of(Owner.this(), tmp_path, "living")
    elsewhere = directory_of(replace(gone(), namespace="pid:[1]"), tmp_path, "container")
    rebooted = directory_of(replace(Owner.this(), boot="another"), tmp_path, "rebooted")
    beginning = tmp_path / f"{litter.PREFIX}beginning"
    abandoned = tmp_path / f"{litter.PREFIX}abandoned"
    for path in (beginning, abandoned, tmp_path / "other"):
        path.mkdir()
    old = time.time() - 2 * litter.NO_OWNER_SECONDS_MAX
    os.utime(abandoned, (old, old))
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in (dead, living):
        (outside / path.name).touch()
        (path / litter.OUTSIDE).write_text(f"file {outside / path.name}\n")
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, gone().variable: gone().started})
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, gone().variable: "2"})
    try:
        litter.sweep(tmp_path)
        assert left.wait(60) == -9
        assert other.poll() is None, "of a later process with the same number"
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
    assert {path.name for path in tmp_path.iterdir()} == {living.name, elsewhere.name, beginning.name, "other", "outside"}
    assert not rebooted.exists()
    assert [path.name for path in outside.iterdir()] == [living.name]


def test_this_process_has_a_short_directory_that_all_may_use() -> None:
    path = Path(os.environ["TMPDIR"])
    assert path.stat().st_mode & 0o7777 == 0o1777
    owner = Owner.read(path / litter.OWNER)
    assert owner is not None
    assert owner == Owner.this()
    assert not owner.is_gone()
    assert len(os.fsencode(path)) < 40, "sockets are made in directories below it"
    child = subprocess.Popen(["sleep", "600"])
    try:
        assert child.pid in janitor.processes_of(os.getpid())
    finally:
        child.kill()
        child.wait()
