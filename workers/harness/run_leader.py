"""The leader of warm runs: the first of a pair of forks (zygote.py). It leads a session of its own, forks the worker before it
has a job, adopts what the worker leaves behind, and says how the run ended.

A worker may offer itself for another run of its experiment (kept_worker.py). The leader lets it wait, for a while, if nothing
else is below them; the next run then has the same leader and the same worker. Whatever ends the agent, or the wait, ends both.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.endings import EXITED, KILLED, SIGNAL_EXIT_BASE
from tenuto.workers.harness.fork_orders import KEPT, ForkOrder, read_line, write_mark
from tenuto.workers.harness.orphans import adopt, below, end_all

KEPT_SECONDS_MAX = 10.0
"""Longest wait of a kept worker for its next run. The next run of a search comes within tenths of a second; the worker's memory,
on a GPU its device's, is the node's again soon after the last one."""
READ_BYTES = 4096


def lead(control: socket.socket, alive: int, work: Callable[[socket.socket], NoReturn]) -> NoReturn:
    """Runs the leader in a fork. `alive`: descriptor that the worker must not hold open; negative: none. `work`: the worker's
    part, with its socket to the leader."""
    code = 1
    try:
        # A session of its own, so that the whole run can be killed by its process group.
        os.setsid()
        adopts = adopt()
        # The zygote ignores SIGCHLD, which a fork inherits, and `waitpid` would then find no exit code.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        link, theirs = socket.socketpair()
        worker = os.fork()
        if worker == 0:
            control.close()
            link.close()
            if alive >= 0:
                os.close(alive)  # what a run leaves behind must not keep its container
            work(theirs)
        # Otherwise the end of the worker would not close the link, and `recv` below would wait for ever.
        theirs.close()
        leader = RunLeader(control, link, worker, adopts=adopts)
        line = read_line(control)
        if not line:
            leader.drop()
        while line:
            line = leader.lead(json.loads(line))
        code = 0
    finally:
        if os.getpid() == os.getsid(0):  # the worker leaves through its own exit handlers
            os._exit(code)
    raise AssertionError("unreachable")


class RunLeader:
    """Leader of one worker, for the runs that it has one after the other."""

    def __init__(self, control: socket.socket, link: socket.socket, worker: int, *, adopts: bool) -> None:
        self._control, self._link, self._worker, self._adopts = control, link, worker, adopts
        self._woken: socket.socket | None = None
        """Socket to which the kernel's word about a child's end is written, once a worker may be kept."""
        self._ended: int | None = None
        """Wait status of the worker, if it was seen to end while its offer, or its next run, was awaited."""

    def lead(self, job: ForkOrder) -> bytes:
        """Leads one run. Returns the order of the next one; empty: the worker is gone."""
        write_mark(job["mark"])
        before = {path: _names(path) for path in job.get("shared", ())}
        with contextlib.suppress(OSError):  # it was killed while it waited, which the next call sees
            self._link.sendall(json.dumps(job).encode() + b"\n")
        # The worker's byte says that its mark is written: only then would a later agent find it by the mark.
        if not self._link.recv(1) or not self._told_to_go():
            # Until the agent has stored the process, it must leave no trace: an agent that died meanwhile will never ask for it.
            self.drop()  # it has run nothing of the user's for this run
            return b""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)  # the worker's business
        with contextlib.suppress(OSError):  # it ended already
            self._link.sendall(b"g")
        offered = self._wait_offer() if job.get("keeps") else None
        if offered is None:
            self._link.close()  # a worker that waits for an answer to its offer leaves then
            code, alone = self._wait_ended()
        else:
            code, alone = offered, True
        _write_exit(job["exit_file"], code)
        if self._adopts and not alone and job["mark"]:  # a container ends its processes itself
            end_all()
        for path, names in before.items():
            _remove_new(path, names)
        try:
            self._control.sendall(KEPT if offered is not None else b"a" if alone else b"e")
        except OSError:  # no agent is there now: the next one reads the file
            if offered is not None:
                self.drop()
            return b""
        return self._wait_order() if offered is not None else b""

    def drop(self) -> None:
        """Ends a worker that has no run."""
        if self._ended is None:  # otherwise its number may be another process's
            os.kill(self._worker, signal.SIGKILL)
            os.waitpid(self._worker, 0)

    def _told_to_go(self) -> bool:
        self._control.sendall(b"%d\n" % os.getpid())
        return read_line(self._control) == b"go"

    def _wait_ended(self) -> tuple[int, bool]:
        """The worker's exit code, and True if none of the processes that it started is left; False if that is unknown."""
        status = self._ended
        while status is None:
            ended, found = os.waitpid(-1, 0)  # others are what the worker started and left to us
            status = found if ended == self._worker else None
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return os.waitstatus_to_exitcode(status), False
        return os.waitstatus_to_exitcode(status), self._adopts

    # A worker that may be kept.

    def _wait_offer(self) -> int | None:
        """The exit code that the worker's run has, if the worker offers itself and can be kept; None: it ends, or has ended."""
        woken = self._woken or self._wake_at_ends()
        while self._ended is None:
            ready, _, _ = select.select([woken, self._link], [], [])
            if woken in ready:
                woken.recv(READ_BYTES)
                self._reap()
            elif line := read_line(self._link):
                return int(line) if self._is_alone() else None
            else:
                return None  # the user's code has closed it
        return None

    def _wait_order(self) -> bytes:
        """The order for the next run of a kept worker; empty if none comes, or if the worker has ended."""
        woken, until = self._woken, time.monotonic() + KEPT_SECONDS_MAX
        assert woken is not None
        while self._ended is None and (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([woken, self._control], [], [], left)
            if woken in ready:
                woken.recv(READ_BYTES)
                self._reap()
            elif ready and (line := read_line(self._control)):
                return line
            elif ready:
                break
        self._control.close()  # first: an agent that gives an order just now then takes another worker
        self.drop()
        return b""

    def _wake_at_ends(self) -> socket.socket:
        self._woken, writing = socket.socketpair()
        self._writing = writing  # kept open
        for one in (self._woken, writing):
            one.setblocking(False)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        self._reap()  # who ended before
        return self._woken

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._worker:
                    self._ended = found[1]

    def _is_alone(self) -> bool:
        """True if the worker is all that is below this process."""
        self._reap()
        if not self._adopts or self._ended is not None:
            return False
        try:  # half a millisecond, where a search of all processes takes ten
            return _children(os.getpid()) == [self._worker] and not _children(self._worker)
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            return below(os.getpid()) == {self._worker}


def _children(pid: int) -> list[int]:
    """Children of a process, of all its threads. Raises OSError where the kernel does not list them."""
    tasks = os.listdir(f"/proc/{pid}/task")
    return [int(child) for task in tasks for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]


def _write_exit(path: str, code: int) -> None:
    partial = f"{path}.partial"
    Path(partial).write_text(f"{code} {EXITED}\n" if code >= 0 else f"{SIGNAL_EXIT_BASE - code} {KILLED}\n")
    # Renamed when complete: an agent may look at the file at any time.
    os.replace(partial, path)


def _names(directory: str) -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(os.listdir(directory))
    return frozenset()


def _remove_new(directory: str, before: frozenset[str]) -> None:
    for name in _names(directory) - before:
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal by a handler and not by SIG_IGN, which a worker would inherit."""
