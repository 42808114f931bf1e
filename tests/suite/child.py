"""Programs that the suite's own tools run, which do not outlive them, however these end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Terminated(SystemExit):
    """This process got SIGTERM."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def hear_sigterm() -> None:
    """Has SIGTERM raise Terminated in the main thread."""
    signal.signal(signal.SIGTERM, _raise)


def _raise(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows ends the programs that run
    raise Terminated


def run(command: Sequence[str], seconds_max: float | None = None, **options: Any) -> int:
    """Exit status of the command; that of a kill if it took longer. At Ctrl-C, which it gets, too, waits for its end. At the end
    of this process by anything else it gets SIGTERM. To be called in the main thread: the end of the thread counts."""
    parent = os.getpid()

    def end_with_parent() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it has ended before
            os._exit(128 + signal.SIGTERM)

    with subprocess.Popen(command, preexec_fn=end_with_parent, **options) as process:
        try:
            return process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise
        except Terminated:
            process.terminate()
            process.wait()
            raise
