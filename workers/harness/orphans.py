"""Ends what a run's processes leave behind, however they were detached: started twice over, in sessions of their own, without the
run's variables. The leader of a run adopts every process whose parent has ended (PR_SET_CHILD_SUBREAPER), so all of them are
below it as long as it lives, and when the worker has ended it leaves only after them.

The leader of a cold worker (leader.py) imports this file with the standard library alone, as that takes an interpreter only some
milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h"""
_FIELD_STATE, _FIELD_PARENT = 0, 1
"""Fields of /proc/<pid>/stat, counted from the process state."""
CLEANERS = (b"torch_shm_manager", b"multiprocessing.resource_tracker")
"""Marks of helpers in their command lines. They end by themselves when the others are gone, and remove the shared memory that
those held; if they were killed, it would stay until the node restarts."""
CLEANER_SECONDS_MAX = 4.0
"""Time that helpers get for that: torch's shared memory manager waits two seconds for further users before it removes memory."""
END_SECONDS_MAX = 10.0
"""Longest time in which the leader ends what is left: a process that SIGKILL does not end by then hangs in a driver, and the
agent says that."""
ROUND_SECONDS_MIN, ROUND_SECONDS_MAX = 0.01, 0.1
"""Pause between two rounds; the first ones are shorter, because most processes end at once."""


def adopt() -> bool:
    """Makes processes that ours start our children when their parent ends, however they were detached. False: not here."""
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def is_cleaner(pid: int) -> bool:
    """True for a helper that removes what dead processes held, and then leaves by itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return False
    return any(name in line for name in CLEANERS)


def below(pid: int, also: frozenset[int] = frozenset()) -> set[int]:
    """Living processes below this one, or below one of `also`, which may have ended while this looked."""
    children: dict[int, list[int]] = {}
    dead = set()
    for one, state, parent in _processes():
        children.setdefault(parent, []).append(one)
        if state in ("Z", "X"):
            dead.add(one)
    found: set[int] = set()
    left = [pid, *also]
    while left:
        new = [child for child in children.get(left.pop(), ()) if child not in found and child != pid]
        found.update(new)
        left += new
    return found - dead


def end_all() -> bool:
    """Ends all that is below this process, which adopts. False: something is left."""
    began, pause = time.monotonic(), ROUND_SECONDS_MIN
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        passed = time.monotonic() - began
        if passed > END_SECONDS_MAX:
            return False
        for pid in below(os.getpid()):
            if passed > CLEANER_SECONDS_MAX or not is_cleaner(pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(ROUND_SECONDS_MAX, 2 * pause)


def _processes() -> Iterator[tuple[int, str, int]]:
    """Each with its state and its parent."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                yield int(name), fields[_FIELD_STATE].decode(), int(fields[_FIELD_PARENT])
