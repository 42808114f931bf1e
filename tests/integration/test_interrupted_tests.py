"""Whoever interrupts the tests, or kills them, finds no server of theirs afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.janitor import processes_of

ROOT = Path(__file__).parents[2]
GONE_SECONDS_MAX = 240.0
"""Of a machine on which much else computes; the wait ends as soon as they are gone."""
SLOW = """
import time
from pathlib import Path

def test_slow(postgres_server, s3_process):
    Path({held!r}).write_text("servers are up")
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(tmp_path: Path, how: signal.Signals) -> None:
    held, file = tmp_path / "held", tmp_path / "test_slow.py"
    file.write_text(SLOW.format(held=str(held)))
    # A process of its own for the tests, as `make test` has them.
    options = ["-q", "-n", "1", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(ROOT)]
    command = [sys.executable, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"), str(file)]
    process: subprocess.Popen[bytes] | None = None
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Who runs these tests in the background (`make test &` in a script) has it ignored, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        [worker] = _workers_when(held, process)
        assert {"postgres", "weed"} <= set(_names(processes_of(worker)))
        os.killpg(process.pid, how)
        process.communicate(timeout=GONE_SECONDS_MAX)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while left := processes_of(worker):
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.1)
    finally:
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _names(pids: list[int]) -> Iterator[str]:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield Path(f"/proc/{pid}/comm").read_text().strip()


def _workers_when(held: Path, process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that run the tests, once the servers are up."""
    while not held.exists():
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"").decode()
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if processes_of(int(pid))]
