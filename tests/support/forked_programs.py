"""Programs run one after the other, each forked from a process that has imported what most of them import: a second or two of a
processor less for each. Otherwise like `python PROGRAM ARGUMENTS`: a process and a session of its own, its folder first on the
path.

    with ForkedPrograms() as programs:
        ended = programs.run(path, ["--small"], environment, cwd, log, seconds_max=60)
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

PRELOADED = ("torch", "asyncpg", "httpx", "nats", "numpy", "yaml", "tenuto.client", "tenuto.services.gateway.app")
"""No module of the tests: a program that does not add the top folder to its path must not find them here."""
LEAVE_SECONDS_MAX = 20.0
"""For a program that takes too long to stop its servers, once it is interrupted."""
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Ended:
    code: int
    too_long: bool
    cpu_seconds: float
    """Of the program and what it waited for; not of servers that it left to end by themselves."""


class ForkedPrograms:
    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # which closes its input, and waits
            pass

    def run(
        self,
        program: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        log: Path,
        *,
        seconds_max: float,
        leave_seconds_max: float = LEAVE_SECONDS_MAX,
    ) -> Ended:
        """After `seconds_max` it is interrupted, and after some more all that is left of it is killed."""
        job = {
            "program": str(program), "arguments": list(arguments), "environment": dict(environment), "cwd": str(cwd),
            "log": str(log), "seconds_max": seconds_max, "leave_seconds_max": leave_seconds_max,
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def serve() -> None:
    """In the process that forks."""
    for name in PRELOADED:
        importlib.import_module(name)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # servers of a killed program become children of this process
    sys.path.pop(0)  # the folder of this file
    while line := os.read(0, 1 << 20):
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(job)
            return
        os.write(1, json.dumps(ended(pid, job["seconds_max"], job["leave_seconds_max"])).encode() + b"\n")
    kill_all()


def become(job: dict[str, Any]) -> None:
    os.setsid()
    with open(job["log"], "wb") as log, open(os.devnull, "rb") as nothing:
        for number, file in enumerate((nothing, log, log)):
            os.dup2(file.fileno(), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = [job["program"], *job["arguments"]]
    sys.path.insert(0, str(Path(job["program"]).parent))
    runpy.run_path(job["program"], run_name="__main__")


def ended(pid: int, seconds_max: float, leave_seconds_max: float) -> dict[str, Any]:
    handle = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    too_long = not poller.poll(seconds_max * 1000)
    if too_long:
        os.kill(pid, signal.SIGINT)
        if not poller.poll(leave_seconds_max * 1000):
            os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    os.close(handle)
    if too_long:
        kill_all()
    return {
        "code": os.waitstatus_to_exitcode(status), "too_long": too_long, "cpu_seconds": round(used.ru_utime + used.ru_stime, 2)
    }  # fmt: skip


def kill_all() -> None:
    """What programs started and left. Until none is left: one may start another while it is being killed."""
    deadline = time.monotonic() + LEAVE_SECONDS_MAX
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)  # which collects those that have ended


if __name__ == "__main__":
    serve()
