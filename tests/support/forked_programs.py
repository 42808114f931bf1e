"""Programs run one after the other, each forked from a process that has imported what most of them import: a second or two of a
processor less for each. Otherwise like `python PROGRAM ARGUMENTS`: a process and a session of its own, its folder first on the
path. What they start as services (benchmarks/service_process.py) is forked here, too.

    with ForkedPrograms() as programs:
        ended = programs.run(path, ["--small"], environment, cwd, log, seconds_max=60)
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import psutil

PRELOADED = (
    *("asyncpg", "httpx", "nats", "numpy", "yaml", "tenuto.client", "tenuto.kernel.relay"),
    *(f"tenuto.services.{name}.app" for name in ("gateway", "searcher", "tracker")),
)
"""No module of the tests: a program that does not add the top folder to its path must not find them here."""
FOR_MODELS = ("torch", "torch._dynamo", "scipy.stats", "optuna")
"""For programs that train or draw themselves, where they are installed. Every torch optimizer imports the second, which takes a
second and a half."""
LEAVE_SECONDS_MAX = 20.0
"""For a program that takes too long to stop its servers, once it is interrupted."""
PR_SET_CHILD_SUBREAPER = 36
FORKS_VARIABLE = "BENCH_FORKS"
"""As benchmarks/service_process.py has it."""
REQUEST_BYTES_MAX = 200_000
"""Arguments and environment of a service: as much as one message of such a socket may hold."""

_ENDS = runpy.run_path(str(Path(__file__).with_name("forked_ends.py")))
to_its_end: Callable[..., int] = _ENDS["to_its_end"]
leave: Callable[[int], NoReturn] = _ENDS["leave"]


@dataclass(frozen=True)
class Ended:
    code: int
    too_long: bool
    cpu_seconds: float
    """Of the program and what it waited for; not of servers that it left to end by themselves."""


class ForkedPrograms:
    def __init__(self, inherited: Sequence[int] = (), *, for_models: bool = True) -> None:
        """`inherited`: descriptors that programs find under the same numbers. `for_models`: False for programs that train nothing
        themselves, as the import of a framework takes six seconds of a processor."""
        self._inherited, self._preloaded = tuple(inherited), FOR_MODELS if for_models else ()

    def __enter__(self) -> Self:
        command, ours = [sys.executable, __file__, *self._preloaded], self._inherited
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=ours)
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
    gc.disable()  # what imports make stays
    for name in PRELOADED:
        importlib.import_module(name)
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # servers of a killed program become children of this process
    sys.path.pop(0)  # the folder of this file
    services = Services()
    gc.collect()
    gc.freeze()  # forks share the memory of what was imported
    gc.enable()
    while line := os.read(0, 1 << 20):
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            leave(to_its_end(become_program, job, services.leave()))
        found = ended(pid, job["seconds_max"], job["leave_seconds_max"], services)
        os.write(1, json.dumps(found).encode() + b"\n")
    kill_all()


class Services:
    """Forks what a program asks for, and tells it how that ended."""

    def __init__(self) -> None:
        self.door, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.running: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor that says when a service has ended: its id, and where that is told."""

    def leave(self) -> int:
        """In a program: only the socket where it asks is kept, whose number is returned."""
        self._close()
        return os.dup(self._theirs.detach())

    def fork(self) -> None:
        request, (out, err, number), _, _ = socket.recv_fds(self.door, REQUEST_BYTES_MAX, 3)
        answers = socket.socket(fileno=number)
        pid = os.fork()
        if pid == 0:
            self._close()
            self._theirs.close()
            answers.close()
            leave(to_its_end(become_service, json.loads(request), out, err))
        os.close(out)
        os.close(err)
        self.running[os.pidfd_open(pid)] = pid, answers
        answers.send(str(pid).encode())

    def ended(self, handle: int) -> None:
        pid, answers = self.running.pop(handle)
        os.close(handle)
        with answers, contextlib.suppress(OSError):  # whoever asked waits no more
            answers.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())

    def _close(self) -> None:
        self.door.close()
        for handle, (_, answers) in self.running.items():
            os.close(handle)
            answers.close()
        self.running.clear()


def become_program(job: dict[str, Any], forks: int) -> None:
    os.setsid()
    with open(job["log"], "wb") as log, open(os.devnull, "rb") as nothing:
        for number, file in enumerate((nothing, log, log)):
            os.dup2(file.fileno(), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.set_inheritable(forks, True)
    become([job["program"], *job["arguments"]], job["environment"] | {FORKS_VARIABLE: str(forks)}, job["cwd"])


def become_service(job: dict[str, Any], out: int, err: int) -> None:
    for descriptor, number in ((out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    become(job["arguments"], job["environment"], job["cwd"])


def become(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """What `python ARGUMENTS` is."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, cwd)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")


def ended(pid: int, seconds_max: float, leave_seconds_max: float, services: Services) -> dict[str, Any]:
    handle, deadline, too_long = os.pidfd_open(pid), time.monotonic() + seconds_max, False
    while True:
        waits = [handle, services.door, *services.running]
        ready, _, _ = select.select(waits, [], [], max(0.0, deadline - time.monotonic()))
        for one in ready:
            if one is services.door:
                services.fork()
            elif one in services.running:
                services.ended(one)
        if handle in ready:
            break
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL if too_long else signal.SIGINT)
            too_long, deadline = True, time.monotonic() + leave_seconds_max
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
