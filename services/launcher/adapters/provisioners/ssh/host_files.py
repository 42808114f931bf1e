"""The first of the parts that run on a host (`host.py`): files and processes."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

LINE_BYTES_MAX = 1000
LOOK_SECONDS = 0.25
PASSED = ("HOME", "PATH", "USER", "LOGNAME", "LANG", "LC_ALL", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TZ")
"""Variables of the account's session that agents see."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def identity(pid: int) -> list[Any]:
    """Number and start of a process: numbers are used again."""
    found = stat_of(pid)
    return [pid, found[19] if found else ""]


def lives(known: list[Any]) -> bool:
    """False also of an empty list: the process has not been started."""
    found = stat_of(known[0]) if known else []
    return bool(found) and found[19] == known[1] and found[0] != "Z"


def below(pid: int) -> list[int]:
    """Processes that descend from this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat:
                children.setdefault(int(stat[1]), []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def write(path: str, value: Any) -> None:
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def load(path: str) -> Any:
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def tail(path: str, lines_max: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - lines_max * LINE_BYTES_MAX))
            lines = file.read(lines_max * LINE_BYTES_MAX).decode(errors="replace").splitlines(True)
    except OSError:
        return ""
    return "".join(lines[-lines_max:])


def short_directories(agent: str, temporary: str) -> list[str]:
    """Directories that a killed agent on the directory `agent` has left in the temporary one: its socket is there, where its own
    directory is too deep for that (`private_directories.py` of agents). An agent that ends in order removes its own."""
    try:
        names = os.listdir(temporary)
    except OSError:
        return []
    own = (os.path.join(temporary, name) for name in names if name.startswith(f"tenuto-{os.getuid()}-"))
    return [path for path in own if agent_of(path) == agent]


def agent_of(short_directory: str) -> str:
    """Directory of the agent that a short directory of this account belongs to; empty if that is not known."""
    try:
        if os.lstat(short_directory).st_uid != os.getuid():
            return ""
        with open(os.path.join(short_directory, "agent")) as file:
            return file.readline().rstrip("\n")
    except (OSError, ValueError):
        return ""
