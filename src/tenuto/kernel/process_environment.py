"""Variables of other processes' environments, by which the processes of a cluster and of a run are found."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

READS_MAX, SECONDS_BETWEEN = 100, 0.001
"""Reads of a process's environment while it becomes another program: the kernel shows none until it has read the program's
headers, which takes some microseconds, or milliseconds from a disk."""
_FIELD_STATE, _FIELD_SIZE, _FIELD_BEGIN, _FIELD_END = 0, 20, 47, 48
"""Fields of /proc/<pid>/stat, counted from the process state: its memory, and where in it the environment lies."""
_HAS_PROC = Path("/proc/self/environ").exists()


def variable_of(pid: int, name: str) -> str:
    """Value of variable `name` in the environment that a process was started with; empty if it has none, or ended. Takes some
    microseconds. Raises OSError if the process is gone or of another account, or if no file descriptor is left."""
    if not _HAS_PROC:
        try:
            return psutil.Process(pid).environ().get(name, "")
        except psutil.Error as error:
            raise ProcessLookupError(f"process {pid} cannot be read: {error}") from None
    _, found, rest = (b"\0" + _environment(pid)).partition(b"\0" + name.encode() + b"=")
    return os.fsdecode(rest.partition(b"\0")[0]) if found else ""


def _environment(pid: int) -> bytes:
    for _ in range(READS_MAX):
        with open(f"/proc/{pid}/environ", "rb") as file:
            if block := file.read():
                return block
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()  # the process name before it may contain any character
        if fields[_FIELD_STATE] in ("Z", "X") or fields[_FIELD_SIZE] == "0":  # ended, or of the kernel itself
            return b""
        if (end := fields[_FIELD_END]) == "0":
            time.sleep(SECONDS_BETWEEN)
        elif fields[_FIELD_BEGIN] == end:
            return b""
    return b""
