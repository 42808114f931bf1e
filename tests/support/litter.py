"""One temporary directory for each process that runs tests, and for all that it starts. With what a test makes elsewhere (a
network namespace, a cgroup), it is removed at the end of that process, by its janitor if the process was killed, and by the
next run if the janitor was killed, too.

Its path is short, for unix sockets, and every account may pass through and write, as in the usual temporary directory. A process
of `pytest -n` has its own below that of the run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tenuto.kernel.tree_removal import remove_tree
from tests.support import janitor
from tests.support.janitor import Owner

ROOT = Path(__file__).parents[2]
PREFIX = "tests-"
OWNER, OUTSIDE = "owner", "outside"
"""Files in it: the process that it belongs to, and what was made elsewhere."""
RUN = "TESTS_DIRECTORY"
"""Variable with the process and the directory of the run, for processes of `pytest -n`."""
MARKS = "TESTS_OF_*"
"""Variables by which the processes of tests are found, which workers of agents have, too."""
WORKER = "PYTEST_XDIST_WORKER"
CGROUPS = Path("/sys/fs/cgroup")
POSTGRES_HOME = "TENUTO_POSTGRES_HOME"
KEPT = {"XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "KERAS_HOME": "keras"}
"""Variables of matplotlib, Hugging Face, Chromium and others, and the directories that they name in that of a run."""
NO_OWNER_SECONDS_MAX = 3600.0
"""Age at which one without the name of its process is left of a run that was killed while it began."""
_own: Path | None = None


def start() -> None:
    """Makes the directory of this process, and starts its janitor; a second call does nothing."""
    global _own
    owner = Owner.this()
    if owner.variable in os.environ:
        return
    run, _, directory = os.environ.get(RUN, "").partition(":")
    name = os.environ.get(WORKER, "")
    if name and run == str(os.getppid()):
        _own = Path(directory) / name
        _own.mkdir()
    else:
        os.environ.pop(WORKER, None)  # of tests that run tests
        place = Path(tempfile.gettempdir())
        sweep(place)
        _own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        os.environ[RUN] = f"{os.getpid()}:{_own}"
        _keep_in(_own)
    (_own / OWNER).write_text(str(owner))
    _own.chmod(0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = str(_own)
    os.environ[owner.variable] = owner.started
    os.environ["TENUTO_WORKER_INHERITS"] = MARKS
    atexit.register(_end, owner, _own)
    _start_janitor(owner, _own)


def _keep_in(run: Path) -> None:
    """Has programs keep in the run's directory what they would keep in the user's home or elsewhere. Processes of one run share
    it: some caches take seconds to fill."""
    os.environ[POSTGRES_HOME] = str(run / "postgres")
    pip = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "pip/pip.conf").expanduser()
    if pip.exists():
        os.environ.setdefault("PIP_CONFIG_FILE", str(pip))  # tests install packages from where the user has them from
    for variable, name in KEPT.items():
        (run / name).mkdir()
        (run / name).chmod(0o1777)
        os.environ[variable] = str(run / name)


def _start_janitor(owner: Owner, directory: Path) -> None:
    code = "import sys; sys.path[:0] = sys.argv[1:3]; from tests.support import litter; litter.watch(sys.argv[3])"
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT), str(ROOT / "src"), str(directory)]
    unmarked = {name: value for name, value in os.environ.items() if name != owner.variable}
    nothing = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1)]
    # A session of its own: what interrupts the tests does not interrupt it.
    os.posix_spawn(sys.executable, command, unmarked, file_actions=nothing, setsid=True)


def watch(directory: str) -> None:
    """What the janitor does: waits for the end of the directory's process, and clears what that has left."""
    janitor.ignore_interrupts()
    owner = Owner.read(Path(directory) / OWNER)
    if owner is not None:
        owner.wait_gone()
        clear(Path(directory))


def _end(owner: Owner, directory: Path) -> None:
    if owner.pid == os.getpid():  # and not a process that was forked from it
        clear(directory, besides=[os.getpid()])


def handed_down() -> dict[str, str]:
    """Variables for what a test starts in an environment of its own, as a machine or a job has one: without them neither its
    processes nor its files would be found after a run that was killed."""
    return {**janitor.marks(), "TMPDIR": tempfile.gettempdir(), "TENUTO_WORKER_INHERITS": MARKS}


def outside(kind: str, name: str | Path) -> None:
    """Notes what is about to be made outside of the temporary directory: `file`, `namespace` (of networks), `device` (of a
    network), `cgroup`, or `empty` (a directory that others may use, too: removed if it is empty). Does nothing in a process that
    runs no tests."""
    if _own is not None:
        with (_own / OUTSIDE).open("a") as file:
            file.write(f"{kind} {name}\n")


def clear(directory: Path, besides: Iterable[int] = ()) -> None:
    """Ends all processes of the directory's process, `besides` excepted, and removes what they have made. Several may do so at
    once."""
    owner = Owner.read(directory / OWNER)
    if owner is not None:
        janitor.end(owner, directory, besides)
    for kind, name in reversed(_made_outside(directory)):
        _remove(kind, name)
    for path in sorted(_mounts_below(directory), reverse=True):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    # It is known by its owner until nothing else is left of it.
    for entry in [*_entries(directory)]:
        if entry.name != OWNER:
            _remove("file", entry)
    remove_tree(directory)


def sweep(place: Path) -> None:
    """Clears what runs left there of which neither the process nor the janitor lives any more."""
    for directory in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            owner = Owner.read(directory / OWNER)
            if owner is None:
                old = time.time() - directory.stat().st_mtime > NO_OWNER_SECONDS_MAX
            if old if owner is None else owner.is_gone():
                clear(directory)


def _remove(kind: str, name: str | Path) -> None:
    with contextlib.suppress(OSError):
        if kind == "namespace":
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        elif kind == "device":
            subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
        elif kind == "empty":
            os.rmdir(name)
        elif kind == "cgroup":
            remove_cgroup(str(name))
        elif Path(name).is_dir() and not Path(name).is_symlink():
            remove_tree(name)
        else:
            os.unlink(name)


def remove_cgroup(name: str) -> None:
    """Removes it in every hierarchy, with those below it. One that has processes stays."""
    for top in CGROUPS.glob(f"**/{name.strip('/')}"):
        for path in [*sorted(top.rglob("*/"), reverse=True), top]:
            with contextlib.suppress(OSError):
                path.rmdir()


def _made_outside(directory: Path) -> list[tuple[str, str]]:
    found = []
    for file in (*sorted(directory.glob(f"*/{OUTSIDE}")), directory / OUTSIDE):
        with contextlib.suppress(OSError):
            found += [(kind, name) for kind, _, name in (line.partition(" ") for line in file.read_text().splitlines())]
    return found


def _mounts_below(directory: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if point.startswith(f"{directory}/"):
            yield point


def _entries(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(directory.iterdir())


class Seen(NamedTuple):
    """What a machine has at a moment, with kinds."""

    things: frozenset[tuple[str, str]]


FOLDERS = (
    ("file", "/var/lib/tenuto"), ("file", "/var/tmp"), ("file", "/run"), ("file", "/run/docker"), ("file", "/run/containerd"),
    ("network namespace", "/run/netns"), ("network device", "/sys/class/net"),
)  # fmt: skip


OF_THE_SYSTEM = ("/run/netns",)
"""`ip netns` mounts it once for all who use it."""


def snapshot(temporary: Path | None = None) -> Seen:
    """`temporary`: the usual temporary directory, where that of this process is another one."""
    found = {("temporary file", str(path)) for path in _entries(temporary or Path(tempfile.gettempdir()))}
    homes = [Path.home() / name for name in ("", ".cache", ".config")]
    found |= {(kind, str(path)) for kind, folder in FOLDERS for path in _entries(Path(folder))}
    found |= {("file", str(path)) for home in homes for path in _entries(home)}
    found |= {("mount", line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {("cgroup", path) for path, _, _ in os.walk(CGROUPS) if "tenuto" in path or "docker" in path}
    found |= {("process", f"{pid} {command}") for pid, command in janitor.left()}
    found |= {("shared memory", str(path)) for path in {*_entries(Path("/dev/shm"))} - janitor.mapped()}
    with contextlib.suppress(OSError):
        segments = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        found |= {("shared memory", f"{line[1]} (System V)") for line in segments if line[6] == "0"}
    return Seen(frozenset(found))


def left_behind(before: Seen, temporary: Path | None = None) -> list[str]:
    """What is there now and was not before, in a line each. What belongs to a run that goes on does not count."""
    living = [path for path in _entries(temporary or Path(tempfile.gettempdir())) if _lives(path)]
    theirs = {Path(name).name for path in living for _, name in _made_outside(path)}
    lines = []
    for kind, name in sorted(snapshot(temporary).things - before.things):
        of_a_run = any(Path(name).is_relative_to(path) for path in living) or theirs & set(Path(name).parts)
        if not of_a_run and name not in OF_THE_SYSTEM:
            lines.append(f"{kind} {name}")
    return lines


def _lives(path: Path) -> bool:
    owner = Owner.read(path / OWNER) if path.name.startswith(PREFIX) else None
    return owner is not None and not owner.is_gone()
