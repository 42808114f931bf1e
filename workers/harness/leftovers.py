"""Threads, files, processes and memory that a run has left in its process: one that has more of them than before is not used
again."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import gc
import os
import stat
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

SETTLE_SECONDS_MAX = 1.0
"""Longest wait for threads and connections that are about to end, such as those of the last report: usually some milliseconds."""
SETTLE_PAUSE_SECONDS = 0.001
NATIVE_THREADS_MORE_MAX = 8
"""Threads of libraries that a run may have started without being refused: gRPC's own come and go."""
MEMORY_MORE_MAX = 0.25
"""Most growth of the resident memory, as a share of that after the first run: the heap of a process varies by some per cent from
run to run. A process that leaks ends long before it takes what others need."""
MEMORY_MORE_BYTES_MAX = 64 << 20
"""Growth that is always allowed: trials of one search differ in the size of their models."""
DESCRIPTORS_LOOKED_AT = 4_096
"""Descriptors that are tried where they cannot be listed: the kernel gives the lowest free number, and few have more."""
OWN_THREADS = 1
"""Threads of ours while this is looked for: the deadline of kept_worker.py."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Leftovers:
    """Noted before the user's first code; each call of `found` compares."""

    def __init__(self) -> None:
        self._threads, self._files = _thread._count() + OWN_THREADS, _files()
        self._handlers, self._finalizers = atexit._ncallbacks(), len(_finalizers())
        self._first: tuple[int, int] | None = None
        """Native threads and memory in bytes after the first run: libraries start and keep some when they are first used."""

    def that_runs(self) -> str:
        """Reason why something of the user's runs before this process ends, or at its end; empty: there is none. Changes
        nothing."""
        return self._at_end() or self._threads_left() or _children_left()

    def uses_helpers(self) -> str:
        """Reason why helpers of data loaders may still be in use: by threads of the user's, or by functions for the end of the
        process. Empty: they are not. Changes nothing."""
        if why := self._at_end():
            return why
        theirs = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not _of_loader(thread)]
        return self._threads_left() if theirs else ""

    def _at_end(self) -> str:
        if atexit._ncallbacks() != self._handlers:  # they cannot be taken back one by one
            return "functions for the end of the process were registered (atexit)"
        if len(_finalizers()) > self._finalizers:
            gc.collect()
        return "objects wait for the end of the process (weakref.finalize)" if len(_finalizers()) > self._finalizers else ""

    def found(self) -> str:
        """Reason why this process is not used again; empty: there is none."""
        return self._at_end() or self._threads_left() or _children_left() or self._files_left() or self._growth()

    def _threads_left(self) -> str:
        if _thread._count() > self._threads:
            gc.collect()  # a trial in a cycle may hold some that end with it
        if _settled(lambda: _thread._count() <= self._threads):
            return ""
        names = sorted(thread.name for thread in threading.enumerate() if thread is not threading.main_thread())
        return f"it left threads ({', '.join(names[:3]) or 'without a name'})"

    def _files_left(self) -> str:
        if _settled(lambda: not _files() - self._files):
            return ""
        return f"it left open files ({', '.join(sorted(_files() - self._files)[:3])})"

    def _growth(self) -> str:
        now = len(os.listdir("/proc/self/task")), _memory_bytes()
        if self._first is None:
            self._first = now
        threads, size_bytes = self._first
        size_bytes_max = size_bytes + max(int(size_bytes * MEMORY_MORE_MAX), MEMORY_MORE_BYTES_MAX)
        if now[1] > size_bytes_max:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)  # what is free, but not given back, is no leak
            if (left_bytes := _memory_bytes()) > size_bytes_max:
                return f"its memory grew from {size_bytes >> 20} to {left_bytes >> 20} MiB"
        most = threads + NATIVE_THREADS_MORE_MAX
        return "" if _settled(lambda: len(os.listdir("/proc/self/task")) <= most) else "it left threads of a library"


def _of_loader(thread: threading.Thread) -> bool:
    """True for the threads by which a data loader and its helpers talk."""
    return thread.name == "QueueFeederThread" or "_pin_memory_loop" in thread.name


def _finalizers() -> Any:
    return weakref.finalize._registry  # type: ignore[attr-defined]


def _settled(done: Callable[[], bool]) -> bool:
    """True once `done` is; waits for what is about to end, and then for what only a collection ends."""
    for _ in range(2):
        until = time.monotonic() + SETTLE_SECONDS_MAX / 2
        while not done():
            if time.monotonic() > until:
                break
            time.sleep(SETTLE_PAUSE_SECONDS)
        else:
            return True
        gc.collect()
    return done()


def _children_left() -> str:
    def none() -> bool:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        return False

    return "" if _settled(none) else "it left processes"


def _files() -> Counter[str]:
    """Open descriptors by what they are: files by name, sockets and pipes by kind. Devices and what a kernel makes without a name
    belong to libraries, which keep them."""
    found: Counter[str] = Counter()
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):  # it is not open, or that of the listing itself
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind):
                found["a socket" if stat.S_ISSOCK(kind) else "a pipe"] += 1
            elif stat.S_ISREG(kind) or stat.S_ISDIR(kind):
                found[_name(descriptor)] += 1
    return found


def _descriptors() -> Iterable[int]:
    try:
        names = os.listdir("/proc/self/fd")
    except PermissionError:  # a private process (launch/memory_protection.py) may not look at its own
        return range(3, DESCRIPTORS_LOOKED_AT)
    return [number for number in map(int, names) if number > 2]  # those before are a run's own output


def _name(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except PermissionError:
        return f"file {os.fstat(descriptor).st_ino}"


def _memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
