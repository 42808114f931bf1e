"""`tenuto up --detach` where commands are forked (command_server.py): then the supervisor is forked from its command, and the
supervisor's preloaded parent from the supervisor, before that has begun anything. Interpreters of their own would import the same
again: three to eight seconds of a processor for each cluster. They show the same command and environment, lead sessions of their
own, and are each other's children as without this. A second preloaded parent, after the first has ended, is an interpreter of its
own.

The server runs this file (`runpy.run_path`): it imports nothing of the tests, and nothing that is started finds it as a module.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 200_000
_ENDS = runpy.run_path(str(Path(__file__).with_name("forked_ends.py")))
to_its_end: Callable[..., int] = _ENDS["to_its_end"]
leave: Callable[[int], NoReturn] = _ENDS["leave"]


def import_ahead() -> None:
    """What the two import. The caller is the process that forks commands."""
    from tenuto.embedded import preload

    os.environ.update(preload.ONE_THREAD)
    for name in (*preload.MODULES, "tenuto.embedded.detached", "tenuto.embedded.start", "tenuto.kernel.migrations"):
        importlib.import_module(name)
    for name in preload.MODULES_IF_THERE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def fork_supervisor() -> None:
    """In a command, before it runs: its supervisor will be forked."""
    from tenuto.embedded import start

    _replace_popen(start, _supervisor)


def _replace_popen(module: Any, start: Callable[..., Any]) -> None:
    module.subprocess = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)


def _supervisor(command: Sequence[str], *, pass_fds: Sequence[int], stdout: Any, cwd: Path, **_: Any) -> None:
    """In place of `subprocess.Popen`."""
    if os.fork():
        return
    from tenuto.embedded import detached, preloaded_parent

    os.dup2(stdout.fileno(), 1)
    os.dup2(1, 2)
    _begin(command, os.environ.copy(), cwd, keep=pass_fds)
    _replace_popen(preloaded_parent, Parents().start)
    leave(to_its_end(lambda: sys.exit(detached.main())))


class Parents:
    """Starts the preloaded parents of a supervisor. The process of the first waits from now on for what it is to become: once the
    supervisor has threads and an event loop, a fork would take along some of both."""

    def __init__(self) -> None:
        self._waits, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            self._waits.close()
            _become_parent(theirs)
        theirs.close()

    def start(
        self, command: Sequence[str], *, pass_fds: Sequence[int], stdout: Any, env: Mapping[str, str], cwd: Path, **more: Any
    ) -> Any:
        """In place of `subprocess.Popen`."""
        pid, self._pid = self._pid, 0
        if not pid:
            return subprocess.Popen(command, pass_fds=pass_fds, stdout=stdout, env=env, cwd=cwd, **more)
        request = {"command": [*command], "environment": {**env}, "directory": str(cwd)}
        with self._waits:
            socket.send_fds(self._waits, [json.dumps(request).encode()], [*pass_fds, stdout.fileno()])
        return ForkedParent(pid)


class ForkedParent:
    """As `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def _become_parent(asked: socket.socket) -> NoReturn:
    request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 2)
    if not request:  # the supervisor has ended without one
        os._exit(0)
    job, (channel, log) = json.loads(request), descriptors
    asked.detach()
    os.dup2(log, 1)
    os.dup2(log, 2)
    _begin([*job["command"][:-1], str(channel)], job["environment"], job["directory"], keep=[channel])
    from tenuto.embedded import preload

    gc.unfreeze()  # it looks for generators of random numbers among all objects
    leave(to_its_end(preload.main))


def _begin(command: Sequence[str], environment: Mapping[str, str], directory: Path | str, keep: Iterable[int]) -> None:
    """Makes this fork what `subprocess.Popen` makes of `python -m MODULE ARGUMENTS`, with the same output."""
    from tenuto.embedded.preload import SPACE_VARIABLE
    from tenuto.embedded.process_memory import show_as

    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number in {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, *keep}:
        with contextlib.suppress(OSError):  # that of the list itself
            os.close(number)
    os.chdir(directory)
    shown = {name: value for name, value in environment.items() if name != SPACE_VARIABLE}
    os.environ.clear()
    os.environ.update(shown)
    show_as(command, shown)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tempfile.tempdir = None  # what was imported may have asked for it, with another environment
    sys.path[0] = os.getcwd()
    sys.argv[:] = [str(sys.modules[command[2]].__file__), *command[3:]]
    sys.orig_argv[:] = command
