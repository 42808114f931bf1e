"""Protects a process's memory from other processes of the same account."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

PRIVATE_VARIABLE = "TENUTO_PRIVATE"
"""Variable that is set if workers have an account of their own, which workers of several users share."""
_PR_SET_DUMPABLE = 4
"""linux/prctl.h"""


def become_private() -> None:
    """If the agent asked for it, makes this process private: from now on no process without special rights can trace it, nor
    read its memory or its environment. Its forks are private, too; programs that it starts are not. A process that is being
    traced already ends."""
    if not os.environ.get(PRIVATE_VARIABLE):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("TracerPid:") and line.split()[1] != "0":
                os._exit(1)
