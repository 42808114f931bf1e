"""The file with the bus's pid may be older than the process that has this pid now."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.embedded.nats import PID_FILE, NatsServer

LISTENS = """
import signal, sys
signal.signal(signal.SIGHUP, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[str]], directory: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", LISTENS, *arguments], stdout=subprocess.PIPE, text=True)
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (directory / PID_FILE).write_text(f"{process.pid}\n")
    return process


def test_only_that_server_is_told_to_read_its_users_again(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> None:
    server = NatsServer(tmp_path)
    assert not server.reload(), "there is no file"
    stranger = start(processes, tmp_path)
    assert not server.reload()
    ours = start(processes, tmp_path, "--config", str(tmp_path / "nats.conf"))
    assert server.reload()
    assert ours.wait(30) == 7
    assert not server.reload(), "it has ended"
    assert stranger.poll() is None, "somebody else's process got no signal"
    for content in ("", "0", "-1", "none"):
        (tmp_path / PID_FILE).write_text(content)
        assert not server.reload()
