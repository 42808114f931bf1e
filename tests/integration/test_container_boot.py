"""The first process of a container, as the first process of a namespace of its own: what a daemon that stops it sends reaches the
worker, which saves and leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tenuto.workers.agent.runtimes.docker import boot
from tests.support.waiting import SECONDS_MAX, ended, until

WORKER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(80))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has namespaces of processes")
def test_what_stops_a_container_reaches_its_worker(tmp_path: Path) -> None:
    job = {
        "umask": 0o077, "check": False, "environment": {}, "directory": str(tmp_path), "command": [sys.executable, "-c", WORKER],
        "token": "t", "token_descriptor": "TOKEN", "image": "i", **{name: str(tmp_path / name) for name in FILES},
    }  # fmt: skip
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, str(boot.__file__)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as outer:
        try:
            assert outer.stdin is not None
            outer.stdin.write(json.dumps(job) + "\n")
            outer.stdin.flush()
            _wait_for(tmp_path / "stdout", "ready\n", outer)
            [first] = psutil.Process(outer.pid).children()
            first.terminate()
            _wait_for(tmp_path / "exit_file", "80 exited\n", outer)
            assert outer.wait(SECONDS_MAX) == 80
        finally:
            outer.kill()


FILES = ("stdout", "stderr", "exit_file", "error_file")


def _wait_for(file: Path, text: str, outer: subprocess.Popen[str]) -> None:
    until(lambda: file.read_text() if file.exists() else None, lambda found: found == text, gone=ended(outer))
