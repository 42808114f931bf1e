"""Worker processes for tests, forked from one that has imported the framework: as the agent starts them
(workers/agent/runtimes/process/warm.py), and some seconds sooner than a new interpreter. One such process per set of modules
serves the whole test session."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tenuto.workers.endings import SIGNAL_EXIT_BASE
from tenuto.workers.harness.fork_orders import KEPT, MARK_BYTES, ForkOrder
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE
from tenuto.workers.launch.layout import GANG_VARIABLE

READY_SECONDS_MAX = 240.0
"""Time limit of importing a framework on a busy machine."""
KERAS = {"tensorflow": ("tensorflow",), "torch": ("keras",)}
"""Modules for trials of Keras, by its back end, which is fixed when it is imported. TensorFlow imports Keras by itself. Either
import costs a process 7 to 12 seconds of processor time, so tests of the same back end share a file."""
FRAMEWORKS = dict.fromkeys(KERAS.values(), "keras")
"""What an agent's warm process is for that has imported these; all others are for PyTorch. TensorFlow's lacks torch, which costs
four seconds more."""
SHARED_VARIABLE = "TEST_SHARED_WORKERS"
"""If set, a trial takes over the process of the one before, whatever that was, if it has stayed: every test of exactness has to
pass so, too."""
PROGRAM_VARIABLE = "TEST_PROGRAM"
"""A program, with its arguments as JSON, that is run in place of a trial."""
FORKED_ENDS = Path(__file__).with_name("forked_ends.py")
_MORE_MODULES = f"""
import json, os, runpy, sys
from tenuto.workers.harness import frameworks, main, zygote

usual, more = frameworks.preloaded, tuple(sys.argv.pop().split(","))
trial, ends = main.main, runpy.run_path({str(FORKED_ENDS)!r})

def program(wait_go=None):
    if "{PROGRAM_VARIABLE}" not in os.environ:
        trial(wait_go)
    wait_go()
    sys.argv = json.loads(os.environ.pop("{PROGRAM_VARIABLE}"))
    sys.path[:0] = [os.path.dirname(sys.argv[0]), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    ends["leave"](ends["to_its_end"](lambda: runpy.run_path(sys.argv[0], run_name="__main__")))

main.main = program
frameworks.preloaded = lambda environment: (*usual(environment), *more)
zygote.main()
"""


class WarmProcess:
    """The leader of a run's session, with the methods of `subprocess.Popen` that tests use. Signals go to the worker itself."""

    def __init__(self, leader: int, exit_file: Path) -> None:
        self.pid = leader
        self.exit_file = exit_file
        self._ended = os.pidfd_open(leader)

    def poll(self) -> int | None:
        return self._code() if self._wait(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self._code()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the worker, which the leader has started before the first output appears."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        os.kill(int(children[0]), number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _wait(self, seconds: float | None) -> bool:
        poller = select.poll()
        poller.register(self._ended, select.POLLIN)
        return bool(poller.poll(None if seconds is None else seconds * 1000))

    def _code(self) -> int:
        try:
            code = int(self.exit_file.read_text().split()[0])
        except FileNotFoundError:
            return -signal.SIGKILL  # the leader was killed with its worker
        return code if code <= SIGNAL_EXIT_BASE else SIGNAL_EXIT_BASE - code

    def __del__(self) -> None:
        os.close(self._ended)


class KeptProcess(WarmProcess):
    """One whose worker may stay."""

    def __init__(self, leader: int, exit_file: Path, control: socket.socket) -> None:
        super().__init__(leader, exit_file)
        self.control = control
        self.kept: bool | None = None
        """None: its run has not been seen to end."""

    def _wait(self, seconds: float | None) -> bool:
        if self.kept is None:
            if not select.select([self.control], [], [], seconds)[0]:
                return False
            self.kept = self.control.recv(1) == KEPT
        return self.kept or super()._wait(seconds)


def _begin(
    control: socket.socket, environment: Mapping[str, str], cwd: Path, log: Path, errors: Path, *, keeps: bool = False
) -> tuple[int, Path]:
    """Gives a leader a run; its process id, and the file of the exit code."""
    exit_file = log.with_name(f"{log.name}.exit")
    exit_file.unlink(missing_ok=True)
    job = ForkOrder(
        environment={"PYTHONHASHSEED": "0", **environment},
        cwd=str(cwd),
        mark=str(log),
        exit_file=str(exit_file),
        stdout=str(log),
        stderr=str(errors),
        gang=GANG_VARIABLE in environment,
        keeps=keeps,
    )
    control.sendall(json.dumps(job).encode() + b"\n")
    leader = int(control.recv(32))
    control.sendall(b"go\n")
    return leader, exit_file


class WarmStarts:
    def __init__(self, modules: tuple[str, ...] = (), inside: tuple[str, ...] = ()) -> None:
        """`modules`: what to import besides what an agent's warm process imports. `inside`: a command that runs another one, in a
        network namespace for example."""
        self._channel, theirs = socket.socketpair()
        self._last: KeptProcess | None = None
        log = Path(tempfile.gettempdir()) / f"tenuto-warm-{os.getpid()}-{len(_STARTS)}.log"
        command = ("-m", "tenuto.workers.harness.zygote") if not modules else ("-c", _MORE_MODULES)
        with theirs, log.open("wb") as output:
            self._process = subprocess.Popen(
                [*inside, sys.executable, "-P", *command, str(theirs.fileno()), *((",".join(modules),) if modules else ())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "PYTHONHASHSEED": "0",
                    "PYTHONFAULTHANDLER": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                    **({"KERAS_BACKEND": "torch"} if "keras" in modules else {}),
                    **({FRAMEWORK_VARIABLE: FRAMEWORKS[modules]} if modules in FRAMEWORKS else {}),
                    RUN_VARIABLE: "-" * MARK_BYTES,
                },
                cwd="/",
            )
        self._channel.settimeout(READY_SECONDS_MAX)
        try:
            if self._channel.recv(1) != b"r":
                raise RuntimeError(log.read_text())
        finally:
            log.unlink()

    def start(self, environment: Mapping[str, str], cwd: Path, log: Path, errors: Path | None = None) -> WarmProcess:
        """`errors`: file of its standard error, if that is not to be mixed with what it prints."""
        if SHARED_VARIABLE in os.environ and errors is None and not {GANG_VARIABLE, PROGRAM_VARIABLE} & environment.keys():
            return self._start_shared(environment, cwd, log)
        with self.fork() as ours:
            return WarmProcess(*_begin(ours, environment, cwd, log, errors or log))

    def _start_shared(self, environment: Mapping[str, str], cwd: Path, log: Path) -> WarmProcess:
        before, self._last = self._last, None
        if before is not None and before.kept:
            with contextlib.suppress(OSError, ValueError):  # it has waited too long
                self._last = self.start_kept(environment, cwd, log, before)
        self._last = self._last or self.start_kept(environment, cwd, log)
        return self._last

    def start_kept(self, environment: Mapping[str, str], cwd: Path, log: Path, before: Any = None) -> KeptProcess:
        """A run whose worker may stay. `before`: one whose worker has stayed, and takes it over; None: there is none."""
        assert before is None or before.kept, f"the worker of the run before has not stayed: {before.exit_file.with_suffix('')}"
        control = self.fork() if before is None else before.control
        return KeptProcess(*_begin(control, environment, cwd, log, log, keeps=True), control)

    def fork(self) -> socket.socket:
        """Socket to the leader of a new pair, which waits for its order."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._channel, [b"f"], [theirs.fileno()])
        ours.settimeout(READY_SECONDS_MAX)
        return ours

    def close(self) -> None:
        """Closes the socket, at which the process ends; processes forked from it go on."""
        self._channel.close()
        self._process.wait()


_STARTS: dict[tuple[str, ...], WarmStarts] = {}


def stop_kept(processes: Iterable[object]) -> None:
    """Gives up workers that wait for another run."""
    for process in processes:
        if isinstance(process, KeptProcess):
            process.control.close()


def warm_starts(modules: tuple[str, ...] = ()) -> WarmStarts:
    """Shared by all tests of this process."""
    if modules not in _STARTS:
        _STARTS[modules] = WarmStarts(modules)
        atexit.register(_STARTS[modules].close)
    return _STARTS[modules]


def run_program(
    modules: tuple[str, ...], program: Path, *arguments: str, directory: Path, seconds_max: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As `python PROGRAM ARGUMENTS` in a process that has imported these modules, with its output captured in new files of this
    directory. `environment`: on top of that of the tests; what is read by an import has no effect."""
    out, errors = directory / f"{program.stem}-out.txt", directory / f"{program.stem}-errors.txt"
    command = [str(program), *arguments]
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment, PROGRAM_VARIABLE: json.dumps(command)}
    process = warm_starts(modules).start(variables, directory, out, errors)
    try:
        code = process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(command, code, out.read_text(), errors.read_text())
