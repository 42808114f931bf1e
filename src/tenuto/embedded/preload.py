"""The preloaded parent: a process that has imported once the modules that services, relay and agent share, and forks each of them
when the supervisor asks. Interpreters of their own would import the same again: a second of a processor for each, and memory.

It has neither threads nor an event loop (a fork takes along only the thread that forks, and locks as the others held them), makes
no object of gRPC, and is told no secret.

The supervisor sends it one byte with a socket and the log of the service. From that socket the fork reads its job, so that no
later fork finds it in its memory. It goes on as `python -m MODULE` does.

The supervisor learns of exit codes by two roads: the parent reports how each of its forks ended, and a fork tells its own code
before it leaves, in case the parent is gone by then. If the supervisor's socket closes, the parent leaves; its forks go on.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from typing import TypedDict

from tenuto.embedded.process_memory import show_as

MODULES = (
    *(f"tenuto.services.{name}.app" for name in ("searcher", "scheduler", "launcher", "tracker", "gateway")),
    "tenuto.workers.agent.main",
    "tenuto.kernel.relay",
)
MODULES_IF_THERE = ("uvloop",)
"""Modules that are imported on first use, if they are installed."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Variables for the imports: numpy would start threads for linear algebra, of which the services do none."""
SPACE_VARIABLE = "TENUTO_PRELOAD_SPACE"
"""Variable that makes room for the environment of a fork, see `process_memory`."""
LINE_BYTES_MAX = 4 << 20
"""Most bytes of a job: an environment has at most a few hundred kilobytes."""
READY = "ready"
REFUSED = "refused"
STARTED = "started"


class ForkRequest(TypedDict):
    command: list[str]
    """Command `python -m MODULE`."""
    environment: dict[str, str]


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.environ.update(ONE_THREAD)
    gc.disable()  # what imports make stays
    for name in MODULES:
        importlib.import_module(name)
    for name in MODULES_IF_THERE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    generators = [item for item in gc.get_objects() if issubclass(type(item), random.Random)]
    gc.freeze()  # a collection in a fork would touch, and so copy, every object of the modules
    _tell(channel, f"{REFUSED} {why}" if (why := _unfit()) else READY)
    control = _serve(channel)
    if control is not None:
        job = _told(control)
        _become(job, generators)
        _tell(control, STARTED)
        _run(job["command"][-1], control)


def _unfit() -> str:
    """Reason why a fork of this process would not be sound; else empty."""
    threads = len(os.listdir("/proc/self/task"))
    return f"an import started threads, it has {threads}" if threads > 1 else ""


def _serve(channel: socket.socket) -> socket.socket | None:
    """Serves the supervisor until it closes the channel. Returns in a fork, too: with the fork's socket."""
    running: dict[int, int] = {}
    """Process ids of the forks by their descriptors."""
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor in running:
                poller.unregister(descriptor)
                os.close(descriptor)
                pid = running.pop(descriptor)
                _tell(channel, f"{pid} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
                continue
            try:
                data, descriptors, _, _ = socket.recv_fds(channel, 1, 2)
            except ConnectionError:  # reports were on their way to a supervisor that was killed
                return None
            if not data:
                return None
            forked = _fork(channel) if len(descriptors) == 2 else None
            if forked == 0:
                for other in running:
                    os.close(other)
                channel.close()
                return _apart(*descriptors)
            for passed in descriptors:
                os.close(passed)
            if forked is not None:
                descriptor = os.pidfd_open(forked)
                running[descriptor] = forked
                poller.register(descriptor, select.POLLIN)


def _fork(channel: socket.socket) -> int | None:
    """Same as `os.fork`, but None if it fails: the caller sees that its socket is closed."""
    if why := _unfit():
        _tell(channel, f"{REFUSED} {why}")
        return None
    try:
        return os.fork()
    except OSError as error:
        print(f"preload: cannot fork: {error}", file=sys.stderr, flush=True)
        return None


def _apart(control: int, log: int) -> socket.socket:
    """Runs in a fork: a session and a log of its own."""
    os.setsid()
    for target in (1, 2):
        os.dup2(log, target)
    os.close(log)
    os.set_inheritable(control, False)
    return socket.socket(fileno=control)


def _told(control: socket.socket) -> ForkRequest:
    """Process that this fork is to become. Exits if the supervisor does not need it."""
    _tell(control, str(os.getpid()))
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = control.recv(65_536)
        if not piece or len(data) > LINE_BYTES_MAX:
            os._exit(0)
        data += piece
    job: ForkRequest = json.loads(data)
    return job


def _become(job: ForkRequest, generators: list[random.Random]) -> None:
    """Turns this process into the one that a new interpreter with that command would be."""
    os.environ.clear()
    os.environ.update(job["environment"])
    show_as(job["command"], job["environment"])
    gc.enable()
    time.tzset()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[:] = [""]  # runpy puts the module's file there
    sys.orig_argv[:] = job["command"]
    for generator in generators:
        generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    if "uuid" in sys.modules:
        sys.modules["uuid"]._last_timestamp = None  # type: ignore[attr-defined]
    tempfile.tempdir = None  # an import may have asked for it, and the answer is remembered


def _run(module: str, control: socket.socket) -> None:
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # it runs as __main__, as with `python -m`; runpy warns if it was imported before
    code: object = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code
        raise
    finally:
        _tell(control, str(code if isinstance(code, int) else int(code is not None)))


def _tell(receiver: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):  # the supervisor is gone, so no process waits for the line
        receiver.sendall(line.encode() + b"\n")


if __name__ == "__main__":
    main()
