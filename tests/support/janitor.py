"""Processes that a process of tests has started, itself or by others: found, and ended.

Each inherits a variable with the number and the start of that process, by which it is found. One that is started without it has
some other variable with a path below the temporary directory of that process; and one in a container has its root there.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROUNDS_MAX = 100
"""Rounds of search and kill. More than one, because a process may be starting while others are killed."""
PAUSE_SECONDS = 0.1
GENTLE_ROUNDS_MAX = 50
"""Rounds in which PostgreSQL may end by itself, and remove its shared memory, which would stay in the kernel."""
_NAME = "TESTS_OF_"
"""Not a name of Tenuto's own: tests of the command line drop all of those."""
_PLACES = (b"PWD=", b"OLDPWD=")
"""Variables of whoever looks at the files of a test in a shell."""
_PARENT, _STARTED = 1, 19
"""Fields of /proc/PID/stat, counted from the process state."""


@dataclass(frozen=True)
class Owner:
    """A process of tests, which is not taken for a later one with its number."""

    pid: int
    started: str
    """In the kernel's count, since the machine has started."""
    boot: str
    namespace: str
    """Of processes: those of another one cannot be seen."""

    @classmethod
    def this(cls) -> Owner:
        return cls(os.getpid(), _started(os.getpid()), *_here())

    @classmethod
    def read(cls, file: Path) -> Owner | None:
        """None: the file is missing, or not written yet."""
        try:
            pid, started, boot, namespace = file.read_text().split()
        except (OSError, ValueError):
            return None
        return cls(int(pid), started, boot, namespace)

    def __str__(self) -> str:
        return f"{self.pid} {self.started} {self.boot} {self.namespace}"

    @property
    def variable(self) -> str:
        return f"{_NAME}{self.pid}"

    def is_gone(self) -> bool:
        """False, too, if that cannot be seen from here."""
        boot, namespace = _here()
        if boot != self.boot:
            return True
        return namespace == self.namespace and _started(self.pid) != self.started

    def wait_gone(self) -> None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        if not self.is_gone():
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll()


def _here() -> tuple[str, str]:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")


def ignore_interrupts() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def marks() -> dict[str, str]:
    """Variables that this process hands down, by which what it starts is found."""
    return {name: value for name, value in os.environ.items() if name.startswith(_NAME)}


def processes_of(pid: int, started: str = "") -> list[int]:
    """Ids of the processes that this process or its descendants have started. `started`: its start; empty if it lives."""
    name = f"{_NAME}{pid}"
    return [one for one, marks in _marked() if name in marks and started in ("", marks[name])]


def left() -> list[tuple[int, str]]:
    """Id and command of each process of tests that has outlived them."""
    found = []
    for pid, marks in _marked():
        if any(_started(int(name.removeprefix(_NAME))) != started for name, started in marks.items()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                found.append((pid, words.replace("\0", " ").strip()))
    return found


def end(owner: Owner, directory: Path, besides: Iterable[int] = ()) -> None:
    """Kills all processes of `owner`, and those in containers whose files are below the directory."""
    if owner.namespace != _here()[1]:
        return
    memory: set[Path] = set()
    spared = {os.getpid(), *besides}
    for number in range(ROUNDS_MAX):
        found = {*processes_of(owner.pid, owner.started), *_naming(directory), *_in_containers(directory)} - spared
        if not found:
            break
        memory |= {path for pid in found for path in memory_of(pid)}
        servers = {pid for pid in found if _is_postmaster(pid)}
        for pid in found - _below(servers) if number < GENTLE_ROUNDS_MAX else found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT if pid in servers and number < GENTLE_ROUNDS_MAX else signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        time.sleep(PAUSE_SECONDS)
    for path in memory:
        path.unlink(missing_ok=True)


def _environments(part: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Entries of each process that has `part` in one of them. Few have, and forked ones of a cluster have room for thousands of
    further entries."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            block = path.read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if part in block:
            yield int(path.parent.name), block.rstrip(b"\0").split(b"\0")


def _naming(directory: Path) -> set[int]:
    """Processes with a variable that has a path below the directory, or the directory itself."""
    path = os.fsencode(directory)
    below = path + b"/"
    return {
        pid
        for pid, entries in _environments(path)
        if any(below in entry or entry.endswith(path) for entry in entries if not entry.startswith(_PLACES))
    }


def _marked() -> Iterator[tuple[int, dict[str, str]]]:
    """Processes with their marks."""
    name = _NAME.encode()
    for pid, entries in _environments(name):
        marks = [entry.decode(errors="replace").partition("=") for entry in entries if entry.startswith(name)]
        if marks:
            yield pid, {name: value for name, _, value in marks}


def _in_containers(directory: Path) -> set[int]:
    """Processes whose root is a mount of something below the directory."""
    found, own = set(), os.stat("/proc/self/ns/mnt").st_ino
    for path in Path("/proc").glob("[0-9]*/ns/mnt"):
        with contextlib.suppress(OSError):
            if path.stat().st_ino == own:
                continue
            lines = (path.parents[1] / "mountinfo").read_text().splitlines()
            if any(line.split()[4] == "/" and f"{directory}/" in line for line in lines):
                found.add(int(path.parents[1].name))
    return found


def _stat(pid: int) -> list[str]:
    """Fields from the process state on; none if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    """Empty if there is no such process."""
    fields = _stat(pid)
    return fields[_STARTED] if fields else ""


def _below(pids: set[int]) -> set[int]:
    """Children of these processes."""
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(int(path.name)) in pids}


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else 0


def _is_postmaster(pid: int) -> bool:
    return _name(pid) == "postgres" != _name(_parent(pid))


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def mapped() -> set[Path]:
    """Files in shared memory that any process has mapped."""
    return {path for item in Path("/proc").glob("[0-9]*") for path in memory_of(int(item.name))}


def memory_of(pid: int) -> Iterator[Path]:
    """Files in shared memory that a process has mapped."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            if (at := line.find("/dev/shm/")) >= 0 and not line.endswith("(deleted)"):
                yield Path(line[at:])
