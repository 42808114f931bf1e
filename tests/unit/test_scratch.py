"""Temporary directories of commands: nothing is left of them, and none is taken that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tenuto.kernel.scratch import scratch_directory

COMMAND = """
import sys
from tenuto.kernel.scratch import scratch_directory
with scratch_directory("test") as place:
    (place / "file").write_text("x")
    print(place, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_command_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with scratch_directory("test") as place:
        (place / "below").mkdir()
        assert place.parent == tmp_path
        assert place.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []

    others = tmp_path / f"tenuto-{os.getuid()}-other-abc"
    others.mkdir()
    process = subprocess.Popen([sys.executable, "-c", COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch_directory("test"):
            assert (left / "file").exists(), "its command lives"
    finally:
        process.kill()
        process.communicate()
    assert (left / "file").exists()
    with scratch_directory("test"):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [others], "of another purpose"
