"""Processes of services that benchmarks start: each an interpreter of its own, but in the suite, which measures nothing, forked
from a process that has imported what they import. An import of a service takes a second or two of a processor."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

FORKS_VARIABLE = "BENCH_FORKS"
"""Descriptor of the socket where a fork is asked for (tests/support/forked_programs.py)."""


class ForkedProcess:
    """With the methods of `subprocess.Popen` that benchmarks use."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid, self._answers, self._code = pid, answers, None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._answers.settimeout(timeout)
            self._code = int(self._answers.recv(64))
            self._answers.close()
        return self._code

    def poll(self) -> int | None:
        there, _, _ = select.select([] if self._code is not None else [self._answers], [], [], 0)
        return self.wait() if there else self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


ServiceProcess = subprocess.Popen[bytes] | ForkedProcess


def start(arguments: Sequence[str], environment: Mapping[str, str], stdout: int = 1) -> ServiceProcess:
    """`python ARGUMENTS`, which are `-m MODULE` or a program, with more. `stdout`: a descriptor for its output."""
    number = os.environ.get(FORKS_VARIABLE)
    if number is None:
        return subprocess.Popen([sys.executable, *arguments], env=environment, stdout=stdout)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = json.dumps({"arguments": [*arguments], "environment": {**environment}, "cwd": os.getcwd()}).encode()
    with theirs, socket.socket(fileno=os.dup(int(number))) as door:
        socket.send_fds(door, [request], [stdout, 2, theirs.fileno()])
    return ForkedProcess(int(mine.recv(64)), mine)
