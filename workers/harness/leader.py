"""Leader of a cold worker's session, the worker's parent: `leader.py EXIT_FILE STDOUT STDERR COMMAND...`.

It waits for a line from the agent, starts the worker, and writes how that ended to a file, with the word that tells a death by a
signal from an exit code of the same number. It adopts all that the worker leaves behind, and ends it before it leaves itself.

It is run by its path with the standard library alone (`python -I -S`), and imports little: each cold worker has one, which needs
four megabytes of its own as long as the worker runs. A warm worker's leader is a fork of the zygote (zygote.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from tenuto.workers.harness import orphans
elif __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # last, so that nothing here hides a standard module
    import orphans

EXITED, KILLED, SIGNAL_EXIT_BASE = "exited", "killed", 128
"""tenuto.workers.endings."""
NOT_FOUND, NOT_STARTED = 127, 126
"""Exit codes of a shell for a command that it does not find, or cannot start."""
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the worker would inherit as ignored from this process, which began with their defaults."""
OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def main() -> None:
    exit_file, stdout, stderr, *command = sys.argv[1:]
    orphans.adopt()
    if not sys.stdin.buffer.readline().endswith(b"\n"):
        return  # the agent died before it had stored this process
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)  # the worker's business
    how = _run(command, stdout, stderr)
    with contextlib.suppress(OSError):  # a full disk: the ending is unknown then, and the rest has to end all the same
        with open(f"{exit_file}.partial", "w") as file:
            file.write(how)
        # Renamed when complete: an agent may look at the file at any time.
        os.replace(f"{exit_file}.partial", exit_file)
    orphans.end_all()


def _run(command: list[str], stdout: str, stderr: str) -> str:
    """Runs the worker; the line that says how it ended."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, stdout, OUTPUT_FLAGS, 0o666),
        (os.POSIX_SPAWN_OPEN, 2, stderr, OUTPUT_FLAGS, 0o666),
    ]
    try:
        worker = os.posix_spawnp(command[0], command, os.environ, file_actions=actions, setsigdef=IGNORED_BY_PYTHON)
    except OSError as error:
        with contextlib.suppress(OSError), open(stderr, "a") as file:
            file.write(f"tenuto: {command[0]} cannot be started: {error.strerror}\n")
        return f"{NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED} {EXITED}\n"
    while True:
        ended, status = os.wait()  # others are what the worker started and left to this process
        if ended == worker:
            break
    if os.WIFSIGNALED(status):
        return f"{SIGNAL_EXIT_BASE + os.WTERMSIG(status)} {KILLED}\n"
    return f"{os.WEXITSTATUS(status)} {EXITED}\n"


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal by a handler and not by SIG_IGN, which the worker would inherit."""


if __name__ == "__main__":
    main()
