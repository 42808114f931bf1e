"""Ends what a test process has started, when that process is gone: also where it was interrupted or killed, and no fixture came
to its end. Started by tests/conftest.py, once for each process that runs tests.

Every process that tests start inherits a variable with the test process's number, by which it is found.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

ROUNDS_MAX = 50
"""Rounds of search and kill. More than one, because a process may be starting while others are killed."""
PAUSE_SECONDS = 0.1


def start() -> None:
    """Starts the janitor of this process; a second call does nothing."""
    variable = _variable(os.getpid())
    if variable in os.environ:
        return
    os.environ[variable] = "1"
    unmarked = {name: value for name, value in os.environ.items() if name != variable}
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    nothing = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1)]
    # A session of its own: what interrupts the tests does not interrupt it.
    os.posix_spawn(sys.executable, command, unmarked, file_actions=nothing, setsid=True)


def processes_of(pid: int) -> list[int]:
    """Ids of the processes that this process or its descendants have started."""
    mark, found = f"{_variable(pid)}=".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if any(entry.startswith(mark) for entry in environment.split(b"\0")):
            found.append(int(path.parent.name))
    return found


def _variable(pid: int) -> str:
    return f"TENUTO_TESTS_OF_{pid}"


def _wait_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pid = int(sys.argv[1])
    _wait_gone(pid)
    for _ in range(ROUNDS_MAX):
        found = processes_of(pid)
        if not found:
            return
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
