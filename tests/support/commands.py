"""Commands of `tenuto` as tests run them by the hundred: each a process of its own, but forked from one that has imported all of
the command line before. A command of its own takes half a second of a processor, most of it imports."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenuto.embedded.preload import SPACE_VARIABLE

SERVER = Path(__file__).with_name("command_server.py")
_lock = threading.Lock()
_server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None
"""The door of this process's server, and the server. It ends when the door is closed, at the latest with this process."""
TITLE_BYTES, SPACE_BYTES = 512, 65_536
"""Room for the command and the environment that processes of a cluster show, which are forked from that server."""
DOOR_VARIABLE = "TEST_COMMANDS_DOOR"
"""Descriptor of another process's door, which this one has inherited and uses instead of a server of its own."""


def run(arguments: Sequence[str], environment: Mapping[str, str], seconds_max: float) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of the command with its output captured, without its standard input."""
    said = [os.memfd_create(name) for name in ("stdout", "stderr")]
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        request = {"arguments": [*arguments], "environment": {**environment}, "directory": os.getcwd()}
        with theirs:
            socket.send_fds(door(), [json.dumps(request).encode()], [*said, theirs.fileno()])
        code = _code(mine, arguments, seconds_max)
        out, err = (_text(descriptor) for descriptor in said)
    finally:
        mine.close()
        for descriptor in said:
            os.close(descriptor)
    return subprocess.CompletedProcess(["tenuto", *arguments], code, out, err)


def close() -> None:
    """Ends the server of this process."""
    if _server is not None:
        door, process = _server
        door.close()
        process.wait()


def _code(answers: socket.socket, arguments: Sequence[str], seconds_max: float) -> int:
    """The exit status, as `subprocess` gives it. The first answer is the process's id, the second its end."""
    pid = int(answers.recv(64) or b"0")
    assert pid, "the server of commands is gone"
    answers.settimeout(seconds_max)
    try:
        return int(answers.recv(64))
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise subprocess.TimeoutExpired(["tenuto", *arguments], seconds_max) from None


def _text(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, encoding="utf-8", closefd=False) as file:
        return file.read()


def door() -> socket.socket:
    """Where commands are asked for. A process that inherits it, and finds its number in DOOR_VARIABLE, asks there, too."""
    global _server
    if (inherited := os.environ.get(DOOR_VARIABLE)) is not None:
        return _inherited(int(inherited))
    with _lock:
        if _server is None:
            atexit.register(close)
        if _server is None or _server[1].poll() is not None:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                number = theirs.fileno()
                # A session of its own: what interrupts the tests ends it by the closed door.
                _server = mine, subprocess.Popen(
                    [sys.executable, str(SERVER), str(number), "-" * TITLE_BYTES], pass_fds=[number],
                    env={**os.environ, SPACE_VARIABLE: "-" * SPACE_BYTES},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        return _server[0]


@functools.cache
def _inherited(number: int) -> socket.socket:
    return socket.socket(fileno=number)
