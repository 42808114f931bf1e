"""Common parts of the two embedded servers: a port that stays the same, a detached process that can be found again, clear errors.

A server runs in a session of its own: Ctrl-C in the terminal reaches only the supervisor, and a supervisor that is killed leaves
its servers running. The next start on the same data directory finds and adopts them.
"""

from __future__ import annotations

import contextlib
import errno
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tenuto.kernel.private_files import private, write_private

LOOPBACK = "127.0.0.1"
PORTS = range(15_000, 30_000)
"""Ports of servers, below the range that the kernel uses for outgoing connections: a port stays free while its server
restarts."""
REST_PORTS = range(30_000, 32_000)
"""Ports of the REST door, apart from those of servers: the gateway listens seconds after its port was chosen, and no server of
another cluster may take it in the meantime."""
PORT_ATTEMPTS_MAX = 3
"""Most starts of a server whose port another program took between the choice and the start."""
PORT_TRIES_MAX = 200
"""Most random picks of a port: even with half of the range taken, this many failures in a row do not happen."""
LOG_BYTES_MAX = 10 * 1024 * 1024
"""Size above which a server's log file is emptied at its start."""
READY_POLL_SECONDS = 0.02
START_SECONDS_MAX = 60.0
"""Longest start: crash recovery of a large log takes seconds; a minute means that something is wrong."""
STOP_SECONDS_MAX = 20.0
"""Longest clean stop; then the server is killed. Both servers recover from that."""


class ServerError(Exception):
    """`str(error)` is one sentence for the user: what, why, what to do."""


def bracketed(host: str) -> str:
    """Host in the form that it has before a port."""
    return f"[{host}]" if ":" in host else host


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like the servers: connections that ended a moment ago do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def choose_port(ports: range = PORTS) -> int:
    draw = random.SystemRandom()
    for _ in range(PORT_TRIES_MAX):
        port = draw.choice(ports)
        if port_is_free(port):
            return port
    raise ServerError(f"No free port found between {ports.start} and {ports.stop - 1} on {LOOPBACK}.")


def kept_port(file: Path) -> int:
    """The port in `file`; at the first call a free one is chosen and written there."""
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        port = choose_port()
        write_private(file, f"{port}\n")
        return port


def start_on_kept_port(file: Path, start: Callable[[], None]) -> None:
    """Calls `start`, which starts a server on the port in `file`. If that port was chosen just now and another program took it
    first, another one is chosen; a port that clients already know is not changed."""
    for attempt in range(1, PORT_ATTEMPTS_MAX + 1):
        known = file.exists()
        try:
            start()
        except ServerError:
            if known or attempt == PORT_ATTEMPTS_MAX or not file.exists() or port_is_free(int(file.read_text())):
                raise
            file.unlink()
        else:
            return


def kept_secret(file: Path) -> str:
    """The secret in `file`, readable only by its owner; made at the first call."""
    try:
        if value := file.read_text().strip():
            return value
    except FileNotFoundError:
        pass
    value = secrets.token_urlsafe(24)
    write_private(file, value + "\n")
    return value


def explain(error: OSError, directory: Path) -> ServerError:
    """The file system's error as a sentence for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ServerError(no_space(directory))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ServerError(
            f"Cannot write to {directory}: {error.strerror}. Choose a directory that you may write to with --data-dir."
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ServerError(f"Cannot use {directory}: a part of this path is a file. Choose another with --data-dir.")
    return ServerError(f"Cannot use {directory}: {error.strerror or error}.")


def no_space(directory: Path) -> str:
    return f"No space left on the disk that holds {directory}: free some, or choose another disk with --data-dir."


def is_alive(process: psutil.Process) -> bool:
    """True if the process runs and is no zombie: an orphan that no process reaps (common in containers) has ended, too."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_gone(processes: Sequence[psutil.Process], seconds_max: float) -> list[psutil.Process]:
    """Waits for the processes to end; returns those that are still alive after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(READY_POLL_SECONDS)
    return alive


class DetachedProcess:
    """A server process in its own session. It is found by its pid file, so it may be the child of a process that has ended."""

    def __init__(self, name: str, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._child: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            return False
        return self._process is not None and is_alive(self._process)

    def adopt(self, pid: int, belongs: Callable[[psutil.Process], bool]) -> bool:
        """Takes over a running process if it is one of ours: a pid alone may belong to any process by now."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE or not belongs(process):
                return False
        except psutil.Error:
            return False
        if self._child is None or self._child.pid != pid:
            self._child = None
        self._process = process
        return True

    def spawn(
        self, command: Sequence[str], *, user: int | None = None, group: int | None = None, environment: Mapping[str, str]
    ) -> None:
        if self.log_file.exists() and self.log_file.stat().st_size > LOG_BYTES_MAX:
            self.log_file.unlink()
        with open(self.log_file, "ab", opener=private) as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=dict(environment),
                user=user,
                group=group,
                extra_groups=[] if user is not None else None,
            )
        self._process = psutil.Process(self._child.pid)

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Raises ServerError with the last lines of the log if the process ends first or takes too long."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if not self.is_running():
                raise ServerError(f"{self.name} did not start: {self.last_words()} (log: {self.log_file})")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} is not ready after {START_SECONDS_MAX:.0f} s (log: {self.log_file}).")
            time.sleep(READY_POLL_SECONDS)

    def last_words(self) -> str:
        """Last line of the log with an error, else its last line."""
        with contextlib.suppress(OSError):
            lines = [line for line in self.log_file.read_text(errors="replace").splitlines()[-40:] if line.strip()]
            marked = [line for line in lines if "FATAL" in line or "PANIC" in line or "[FTL]" in line or "[ERR]" in line]
            if lines:
                return (marked or lines)[-1].strip()
        return "it wrote no log"

    def stop(self, how: signal.Signals) -> None:
        """Asks the process to stop, waits, and kills it with all its children if that takes too long."""
        if not self.is_running() or self._process is None:
            self._reap()
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.send_signal(how)
        if wait_gone([self._process], STOP_SECONDS_MAX):
            self.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL for the process and its children; returns when all of them are gone."""
        if self._process is None:
            return
        victims = [self._process]
        with contextlib.suppress(psutil.Error):
            victims = [self._process, *self._process.children(recursive=True)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        self._reap()
        wait_gone(victims, STOP_SECONDS_MAX)

    def _reap(self) -> None:
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=STOP_SECONDS_MAX)
