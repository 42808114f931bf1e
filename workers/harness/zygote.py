"""The zygote: a process that has imported the modules of every training process, and forks one for each run. `import torch` costs
seconds, a fork some milliseconds. The agent starts it; no user's code is ever loaded here.

The agent sends one byte with a socket for each run, also ahead of need. The fork that gets it replaces the leader
of a cold worker (leader.py): it leads a session of its own, forks the worker, and both stand by. Once it gets a job, it
sends its process id, waits for its go, writes the worker's exit code to a file, ends what the worker left behind (orphans.py),
and reports that, and whether there was nothing. If the agent's socket closes, before the go or here, the agent is gone or does
not need it: then nothing more is started.

In a container (agent/runtimes/docker/boot.py) all of this is alike, but for four things. A run's environment comes on top of the
image's. Nothing marks its processes: the container does. A pipe that the leaders hold says when the last of them is gone, at
which the container ends. And the leader removes what the run has left where all runs of the container may write.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn, NotRequired, TypedDict

from tenuto.kernel import plugins
from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.endings import EXITED, KILLED, SIGNAL_EXIT_BASE
from tenuto.workers.harness import frameworks
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE
from tenuto.workers.harness.orphans import adopt, end_all
from tenuto.workers.harness.rehearsal import rehearse, threads_ended
from tenuto.workers.launch.memory_protection import become_private
from tenuto.workers.launch.token import hand_down_token
from tenuto.workers.record.environment import remember_packages

MARK_VARIABLE = "TENUTO_RUN"
MARK_BYTES = 2_048
"""Bytes reserved for the mark: the agent's directory and an allocation id."""
JOB_BYTES_MAX = 4 << 20
"""Most bytes of a job: an environment has at most a few hundred kilobytes."""
_FIELD_ENVIRONMENT_START = 47
"""Field 50 of /proc/<pid>/stat, counted from the process state; field 51 is its end."""
ALIVE_VARIABLE = "TENUTO_ALIVE_DESCRIPTOR"
"""Variable with the descriptor of a pipe that this process and the leaders of runs hold, if there is one."""
PRELOADED_IF_THERE = ("grpc._channel", "grpc._simple_stubs", "grpc.experimental", "numpy.ctypeslib")
"""Modules that these packages import when they are first used: by the first channel or batch. They take tens of milliseconds;
other versions may have other names."""

_ENVIRONMENT: dict[str, str] = {}
"""Variables that this process was started with: imports add some."""


class ForkOrder(TypedDict):
    environment: dict[str, str]
    cwd: str
    mark: str
    """Empty: the processes of the run are found otherwise."""
    exit_file: str
    stdout: str
    stderr: str
    gang: NotRequired[bool]
    """True: the trial trains on several slots, so the supervisor of its ranks is started."""
    unset: NotRequired[list[str]]
    """Variables that a run does not have of those of the zygote, to which its own are added; without this key they replace all
    of them."""
    command: NotRequired[list[str]]
    """Program that is run in place of our own harness."""
    shared: NotRequired[list[str]]
    """Directories that runs which follow each other share: whatever is new in them at the end of the run is removed."""


def main() -> NoReturn:
    become_private()
    channel = socket.socket(fileno=int(sys.argv[1]))
    alive = int(os.environ.pop(ALIVE_VARIABLE, "-1"))
    if alive >= 0:
        os.set_inheritable(alive, False)
    gc.disable()  # what imports make stays: to look through it again and again takes a tenth of their time
    modules = frameworks.preloaded(os.environ)  # reads what is installed, so that no run has to
    os.environ.pop(FRAMEWORK_VARIABLE, None)
    _ENVIRONMENT.update(os.environ)
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    further = (name for framework in frameworks.imported() for name in framework.preloads_if_there) if modules else ()
    for name in (*PRELOADED_IF_THERE, *further):
        if name.partition(".")[0] in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    remember_packages()
    for group in plugins.GROUPS:
        plugins.declared(group)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended runs leave the process table by themselves
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, every object of the modules
    channel.sendall(b"r")
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not data:
            os._exit(0)
        for descriptor in descriptors:
            if os.fork() == 0:
                # The fork must not hold the agent's channel open, nor read the next job from it.
                channel.close()
                _lead(socket.socket(fileno=descriptor), alive)
            os.close(descriptor)


def _lead(control: socket.socket, alive: int) -> NoReturn:
    """Runs the first fork: the leader of a run's session. It forks the worker before it has a job, so that no fork is needed
    when a run arrives."""
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
            _work(_stand_by(theirs), theirs)
        # Otherwise the end of the worker would not close the link, and `recv` below would wait for ever.
        theirs.close()
        line = _read_line(control)
        before: dict[str, frozenset[str]] = {}
        if line:
            job: ForkOrder = json.loads(line)
            _write_mark(job["mark"])
            before = {path: _names(path) for path in job.get("shared", ())}
            link.sendall(line + b"\n")
        # The worker's byte says that its mark is written: only then would a later agent find it by the mark.
        if not line or not link.recv(1) or not _told_to_go(control):
            # Until the agent has stored the process, it must leave no trace: an agent that died meanwhile will never ask for it.
            os.kill(worker, signal.SIGKILL)  # it has run nothing of the user's
            os.waitpid(worker, 0)
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)  # the worker's business
        with contextlib.suppress(OSError):  # it ended already
            link.sendall(b"g")
        link.close()
        code, alone = _wait_ended(worker, adopts)
        partial = f"{job['exit_file']}.partial"
        Path(partial).write_text(f"{code} {EXITED}\n" if code >= 0 else f"{SIGNAL_EXIT_BASE - code} {KILLED}\n")
        # Renamed when complete: an agent may look at the file at any time.
        os.replace(partial, job["exit_file"])
        if adopts and not alone and job["mark"]:  # a container ends its processes itself
            end_all()
        for path, names in before.items():
            _remove_new(path, names)
        with contextlib.suppress(OSError):  # no agent is there now: the next one reads the file
            control.sendall(b"a" if alone else b"e")
        code = 0
    finally:
        if os.getpid() == os.getsid(0):  # the worker leaves through its own exit handlers
            os._exit(code)
    raise AssertionError("unreachable")


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


def _wait_ended(worker: int, adopts: bool) -> tuple[int, bool]:
    """The worker's exit code, and True if none of the processes that it started is left; False if that is unknown."""
    while True:
        ended, status = os.waitpid(-1, 0)  # others are what the worker started and left to us
        if ended == worker:
            break
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return os.waitstatus_to_exitcode(status), False
    return os.waitstatus_to_exitcode(status), adopts


def _told_to_go(control: socket.socket) -> bool:
    control.sendall(b"%d\n" % os.getpid())
    return _read_line(control) == b"go"


def _stand_by(link: socket.socket) -> ForkOrder:
    """Runs the second fork, the worker: waits for its job, and shows its mark. Leaves with its leader."""
    rehearse(link)
    line = _read_line(link)
    if not line:
        os._exit(0)
    job: ForkOrder = json.loads(line)
    _write_mark(job["mark"])
    link.sendall(b"m")
    return job


def _wait_go(link: socket.socket) -> None:
    if not link.recv(1):
        os._exit(0)
    link.close()


def _work(job: ForkOrder, link: socket.socket) -> NoReturn:
    """Continues as if `python -m tenuto.workers.harness` had been started, except that no user's code is loaded before its go:
    until then it reports to the agent."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for target, path, flags in ((0, os.devnull, os.O_RDONLY), (1, job["stdout"], append), (2, job["stderr"], append)):
        descriptor = os.open(path, flags, 0o666)
        os.dup2(descriptor, target)
        os.close(descriptor)
    # The environment of this process is the zygote's; the run's replaces it completely, so nothing is inherited by accident.
    os.environ.clear()
    if "unset" in job:
        os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in job["unset"]})
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    gc.enable()
    tempfile.tempdir = None  # an import may have asked for it, and the answer is remembered
    sys.argv = [str(Path(__file__).with_name("__main__.py"))]
    if command := job.get("command"):
        _wait_go(link)
        with hand_down_token(os.environ) as (variables, descriptors):
            for descriptor in descriptors:
                os.set_inheritable(descriptor, True)
            os.execvpe(command[0], command, variables)
    _fresh_randomness()
    from tenuto.workers.harness.main import main as work

    if job.get("gang"):
        from tenuto.workers.launch.supervisor import main as supervise

        def rank() -> NoReturn:
            _fresh_randomness()
            work()

        _wait_go(link)
        supervise(rank if threads_ended() else None)
    work(lambda: _wait_go(link))


def _fresh_randomness() -> None:
    """Seeds the generators anew: otherwise all forks would begin with the same state, whereas started processes begin with
    random ones."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    for framework in frameworks.imported():
        framework.reseed()


def _write_mark(mark: str) -> None:
    """Writes the run's mark into the memory that others read as this process's environment (/proc/<pid>/environ): a fork
    otherwise shows the environment that its ancestor was started with. Later forks show the mark, too, so a stray helper is
    found and killed."""
    if not mark:
        return
    name = f"{MARK_VARIABLE}=".encode()
    value = mark.encode()
    stat = Path("/proc/self/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    start, end = (int(fields[index]) for index in (_FIELD_ENVIRONMENT_START, _FIELD_ENVIRONMENT_START + 1))
    # Read from memory: a private process (launch/memory_protection.py) may not even open its own /proc/self/environ.
    offset = (b"\0" + ctypes.string_at(start, end - start)).index(b"\0" + name) + len(name)
    if len(value) > MARK_BYTES:
        raise ValueError(f"the mark {mark!r} is longer than {MARK_BYTES} bytes")
    ctypes.memmove(start + offset, value + b"\0" * (MARK_BYTES - len(value)), MARK_BYTES)


def _read_line(control: socket.socket) -> bytes:
    """One line; empty at the end of the stream."""
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = control.recv(65_536)
        if not piece or len(data) > JOB_BYTES_MAX:
            return b""
        data += piece
    return bytes(data[:-1])


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal by a handler and not by SIG_IGN, which a worker would inherit."""


if __name__ == "__main__":
    main()
