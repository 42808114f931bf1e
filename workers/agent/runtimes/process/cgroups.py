"""Limits of runs by cgroups: memory and processors of all processes of a run, whatever they start.

Each run has a cgroup of its own (in version 1: one in each of two hierarchies), with a name that only agents on this directory
use. It is made below the agent's own cgroup, or below the one that the operator names. Its directories are noted in the agent's
directory first, so that an agent that is started elsewhere, or with other settings, finds and removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tenuto.kernel.private_files import private
from tenuto.schemas.events.agent import UNLIMITED_CHARACTERS_MAX
from tenuto.schemas.text import storable
from tenuto.workers.agent.runtimes.process.cgroup_places import (
    MEMORY_FILES,
    Controller,
    MemoryEnd,
    Version,
    base_of_own,
    limits,
    memory_end,
    mount_of,
    mounts,
    normal,
    own_paths,
)

logger = logging.getLogger(__name__)

LEAF = "tenuto-agent"
"""Cgroup of version 2 that an agent moves into, below its own."""
MOVE_ROUNDS_MAX = 20
"""Most rounds of moving the agent's own processes: each catches those forked during the previous one."""
REMOVE_SECONDS_MAX = 2.0
"""Longest wait until a cgroup whose processes were killed is empty: the kernel takes back their memory first."""
REMOVE_AGAIN_SECONDS = 0.02
DEPTH_MAX = 8
"""Deepest cgroups that are looked for below a run's own: code that may make some, as of the agent's own account, hides nothing
below them."""
_FOLDER = "cgroups"


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of runs, from the agent's settings."""

    memory_bytes_per_slot: int = 0
    """0: no limit."""
    cpus_per_slot: float = 0.0
    """0: no limit."""
    parent: str = ""
    """Cgroup below which those of runs are made, counted from the root of the hierarchy. Empty: the agent's own."""

    def wanted(self) -> Mapping[Controller, float]:
        values: dict[Controller, float] = {"memory": self.memory_bytes_per_slot, "cpu": self.cpus_per_slot}
        return {controller: value for controller, value in values.items() if value > 0}


class NotAllowed(Exception):
    """A controller cannot be used here; `str(error)` says why and what to do."""


class Tree:
    """The kernel's file system of cgroups. Each call raises OSError."""

    def own(self) -> tuple[str, str]:
        """/proc/self/mountinfo and /proc/self/cgroup."""
        return Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()

    def make(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def read(self, path: Path) -> str:
        return path.read_text()

    def write(self, path: Path, value: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never makes a file: what is missing is an error
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def below(self, path: Path) -> list[Path]:
        return [Path(entry.path) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]

    def remove(self, path: Path) -> None:
        path.rmdir()


@dataclass(frozen=True)
class _Used:
    """A controller that limits runs here."""

    controller: Controller
    version: Version
    base: Path


class Cgroups:
    def __init__(self, directory: Path, wanted: ProcessLimits, tree: Tree | None = None) -> None:
        """`directory`: of the agent."""
        self._limits, self._tree = wanted, tree or Tree()
        self._notes = directory / _FOLDER
        self._name = f"tenuto-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}-"
        self._used: tuple[_Used, ...] = ()
        self.problem = ""
        """Reason why not all limits hold here; empty if they do, or if there are none."""

    def open(self, ours: Callable[[], Collection[int]]) -> None:
        """Finds out what can be limited here, by limiting it. `ours`: processes of runs that may be in the agent's own cgroup."""
        used: list[_Used] = []
        problems: dict[str, list[str]] = {}
        for controller, value in self._limits.wanted().items():
            try:
                used.append(self._prepared(controller, value, ours))
            except NotAllowed as error:
                problems.setdefault(str(error), []).append("memory" if controller == "memory" else "processors")
        told = [f"no limit of {' and '.join(names)}, because {why}" for why, names in problems.items()]
        self._used, self.problem = tuple(used), storable("; ".join(told))[:UNLIMITED_CHARACTERS_MAX]

    @property
    def limits(self) -> bool:
        """True if runs have cgroups here."""
        return bool(self._used)

    def make(self, allocation_id: str, slots: int) -> bool:
        """Makes the cgroup of a run. False if it needs none. Raises OSError."""
        if not self._used:
            return False
        paths = {item.base / f"{self._name}{allocation_id}": item.version for item in self._used}
        self._note(allocation_id, paths)
        for path in paths:
            self._tree.make(path)
        for item in self._used:
            value = self._limits.wanted()[item.controller] * max(1, slots)
            self._limit(item.base / f"{self._name}{allocation_id}", item, value)
        return True

    def add(self, allocation_id: str, pid: int) -> None:
        """Puts a process into the run's cgroup; what it starts from then on is there, too. Raises OSError."""
        for path in self._paths(allocation_id):
            try:
                self._tree.write(path / "cgroup.procs", str(pid))
            except ProcessLookupError:  # it was killed meanwhile, which `wait` sees
                return

    def members(self, allocation_id: str) -> set[int]:
        """Processes in the run's cgroup, zombies not included."""
        return {pid for path in self._paths(allocation_id) for part in self._with_below(path) for pid in self._pids(part)}

    def memory_end(self, allocation_id: str) -> MemoryEnd:
        """Result of the check that memory ran out in the run's cgroup, up to now."""
        for path, version in self._paths(allocation_id).items():
            files = {}
            for name in MEMORY_FILES[version]:
                with contextlib.suppress(OSError):
                    files[name] = self._tree.read(path / name)
            if (end := memory_end(version, files)).killed:
                return end
        return MemoryEnd(False, 0)

    def remove(self, allocation_id: str) -> None:
        """Removes the cgroup of a run whose processes are gone. What cannot be removed now stays noted, for `sweep`."""
        left = [path for path in self._paths(allocation_id) if not self._removed(path)]
        if not left:
            (self._notes / f"{allocation_id}.json").unlink(missing_ok=True)

    def sweep(self, live: Collection[str]) -> None:
        """Removes cgroups of runs that are not in `live`, of earlier agents on this directory, too."""
        for note in self._notes.glob("*.json"):
            if note.stem not in live:
                self.remove(note.stem)
        for base in {item.base for item in self._used}:
            for path in self._below(base):
                if path.name.startswith(self._name) and path.name.removeprefix(self._name) not in live:
                    self._removed(path)

    def _prepared(self, controller: Controller, value: float, ours: Callable[[], Collection[int]]) -> _Used:
        """Tries the controller with a cgroup that is removed at once. Raises NotAllowed."""
        try:
            mountinfo, own = self._tree.own()
        except OSError as error:
            raise NotAllowed(f"this machine has no cgroups ({error})") from error
        mount = mount_of(controller, mounts(mountinfo))
        if mount is None:
            raise NotAllowed(f"this machine has no cgroups with the controller {controller}")
        named = normal(self._limits.parent) if self._limits.parent else ""
        path = named or own_paths(own).get(controller if mount.version == 1 else "", "")
        base = mount.directory(path) if path else None
        if base is None:
            raise NotAllowed(f"the cgroup {path or 'of the agent'} is not visible at {mount.point}")
        if not named and mount.version == 2:
            base = base_of_own(base, LEAF)
        used = _Used(controller, mount.version, base)
        probe = base / f"{self._name}probe"
        try:
            if named:
                self._make_all(mount.point, base)
            if mount.version == 2:
                self._enable_all(mount.point if named else base, base, controller, ours)
            self._tree.make(probe)
            try:
                self._limit(probe, used, value)
                with _idle_process() as pid:
                    self._tree.write(probe / "cgroup.procs", str(pid))
            finally:
                self._removed(probe)
        except OSError as error:
            why = error.strerror or str(error)
            raise NotAllowed(f"the agent cannot limit cgroups below {base} ({why}); {_advice(mount.version)}") from error
        return used

    def _make_all(self, point: Path, base: Path) -> None:
        """Makes the cgroup that the operator named, and those above it. Raises OSError."""
        for path in reversed([base, *base.parents]):
            if path != point and path.is_relative_to(point) and not self._tree.exists(path):
                self._tree.make(path)

    def _enable_all(self, first: Path, base: Path, controller: Controller, ours: Callable[[], Collection[int]]) -> None:
        """Lets cgroups below `base` have the controller, as version 2 asks for it in each cgroup from `first` down. Raises
        OSError and NotAllowed."""
        for path in reversed([base, *base.parents]):
            if path.is_relative_to(first) and controller not in self._tree.read(path / "cgroup.subtree_control").split():
                if controller not in self._tree.read(path / "cgroup.controllers").split():
                    raise NotAllowed(f"the cgroup {path} was not given the controller for it; {_advice(2)}")
                if path == base and not self._limits.parent:
                    self._leave(base, ours)
                self._tree.write(path / "cgroup.subtree_control", f"+{controller}")

    def _leave(self, base: Path, ours: Callable[[], Collection[int]]) -> None:
        """Moves the agent's own processes out of its cgroup, into a child: a cgroup with processes, other than the root, gives
        its children no controllers. Processes of others are left alone. Raises OSError and NotAllowed."""
        if not self._tree.exists(base / "cgroup.type"):  # only the root has none
            return
        for _ in range(MOVE_ROUNDS_MAX):
            pids = self._pids(base)
            if not pids:
                return
            own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True)), *ours()}
            if strangers := sorted(pids - own):
                raise NotAllowed(f"the agent's cgroup {base} has other processes ({strangers[0]} is one); {_advice(2)}")
            self._tree.make(base / LEAF)
            for pid in sorted(pids):
                with contextlib.suppress(ProcessLookupError):
                    self._tree.write(base / LEAF / "cgroup.procs", str(pid))

    def _limit(self, path: Path, item: _Used, value: float) -> None:
        for name, text, required in limits(item.controller, item.version, value):
            if required or self._tree.exists(path / name):
                self._tree.write(path / name, text)

    def _note(self, allocation_id: str, paths: Mapping[Path, Version]) -> None:
        """Raises OSError."""
        self._notes.mkdir(mode=0o700, exist_ok=True)
        note = self._notes / f"{allocation_id}.json"
        with open(partial := note.with_suffix(".partial"), "w", opener=private) as file:
            json.dump({str(path): version for path, version in paths.items()}, file)
        os.replace(partial, note)

    def _paths(self, allocation_id: str) -> dict[Path, Version]:
        """Directories of the run's cgroup, with their versions; none if it has none."""
        try:
            noted = json.loads((self._notes / f"{allocation_id}.json").read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning("the note of the cgroup of %s cannot be read: %s", allocation_id, error)
            return {item.base / f"{self._name}{allocation_id}": item.version for item in self._used}
        return {Path(path): version for path, version in noted.items() if Path(path).name == f"{self._name}{allocation_id}"}

    def _pids(self, path: Path) -> set[int]:
        try:
            return {int(line) for line in self._tree.read(path / "cgroup.procs").split()}
        except (OSError, ValueError):  # gone, or a thread's own
            return set()

    def _below(self, path: Path) -> list[Path]:
        try:
            return self._tree.below(path)
        except OSError:
            return []

    def _with_below(self, path: Path, depth: int = DEPTH_MAX) -> Iterator[Path]:
        """The deepest first."""
        for child in self._below(path) if depth else ():
            yield from self._with_below(child, depth - 1)
        yield path

    def _removed(self, path: Path) -> bool:
        """Removes a cgroup; False if it cannot be removed now."""
        deadline = time.monotonic() + REMOVE_SECONDS_MAX
        while True:
            try:
                for part in list(self._with_below(path)):
                    with contextlib.suppress(FileNotFoundError):
                        self._tree.remove(part)
                return True
            except OSError as error:
                if time.monotonic() > deadline:
                    logger.warning("the cgroup %s cannot be removed yet: %s", path, error)
                    return False
            time.sleep(REMOVE_AGAIN_SECONDS)


@contextlib.contextmanager
def _idle_process() -> Iterator[int]:
    """A process that waits, like that of a run before its go."""
    with subprocess.Popen(["/bin/sh", "-c", "read -r go"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process.pid


def _advice(version: int) -> str:
    named = "or name a cgroup that it may use in TENUTO_CGROUP_PARENT"
    if version == 1:
        return f"start it as root, {named}"
    return f"start it in a cgroup of its own that is delegated to it (systemd: Delegate=yes), {named}"
