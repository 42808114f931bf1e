"""Whoever interrupts the tests, or kills them, finds no server of theirs afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.janitor import processes_of

ROOT = Path(__file__).parents[2]
GONE_SECONDS_MAX = 60.0
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
    held, file = tmp_path / "held", ROOT / "tests" / "integration" / f"_interrupted_{os.getpid()}_{how.name.lower()}.py"
    file.write_text(SLOW.format(held=str(held)))
    # A process of its own for the tests, as `make test` has them.
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:randomly", "-p", "no:cacheprovider", str(file)]
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        [worker] = _workers_when(held, process)
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in processes_of(worker)}
        assert {"postgres", "weed"} <= names
        os.killpg(process.pid, how)
        process.communicate(timeout=GONE_SECONDS_MAX)
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while left := processes_of(worker):
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.1)
    finally:
        file.unlink()


def _workers_when(held: Path, process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that run the tests, once the servers are up."""
    while not held.exists():
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"").decode()
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if processes_of(int(pid))]
