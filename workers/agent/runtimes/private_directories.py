"""Directories that only the agent's own account can write to, some of them under the usual temporary directory."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import stat
import tempfile
from pathlib import Path

from tenuto.kernel.account import PASSING
from tenuto.kernel.private_files import write_private
from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.agent.runtimes.process.processes import marked

logger = logging.getLogger(__name__)

_NAME = re.compile(r"tenuto-(\d+)-[0-9a-f]{16}")
_NOTE = "agent"
"""File in a short directory: the agent's directory, and the namespace of processes that its workers are in."""
_TRIES_MAX = 20
"""Most tries to take a short directory that another agent removes meanwhile."""


def short_directory(directory: Path) -> Path:
    """Directory under the usual temporary directory, for paths that `directory` is too deep for. It is the same for every
    agent on `directory`."""
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tenuto-{os.getuid()}-{name}"


class ShortDirectory:
    """The short directory of an agent, from `take` to `leave`. Several parts of one agent may have it at once; the last one that
    leaves removes it. Of a killed agent, the next agent of this account removes it, whatever its own directory is."""

    def __init__(self, directory: Path, *, for_containers: bool = False) -> None:
        """`for_containers`: containers have it mounted, and no later agent can see that they still run."""
        self.path, self._directory, self._for_containers = short_directory(directory), directory.absolute(), for_containers
        self._held: int | None = None

    def take(self, *, open_for_passing: bool) -> None:
        """Makes it, if it does not exist. `open_for_passing`: see `make_private`. Raises OSError."""
        if self._held is not None and self.path.exists():
            return
        self._let_go()
        for _ in range(_TRIES_MAX):
            make_private(self.path, open_for_passing=open_for_passing)
            held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                with contextlib.suppress(OSError):  # no locks on this file system: no agent removes it, either
                    fcntl.flock(held, fcntl.LOCK_SH)
                if not os.path.samestat(os.fstat(held), self.path.lstat()):
                    raise FileNotFoundError
                if not self._for_containers:
                    write_private(self.path / _NOTE, f"{self._directory}\n{_namespace()}\n")
            except FileNotFoundError:  # removed meanwhile
                os.close(held)
                continue
            except BaseException:
                os.close(held)
                raise
            self._held = held
            return
        raise OSError(f"{self.path} is removed by another program again and again")

    def leave(self) -> None:
        """Removes it, unless it holds files of workers that go on, or another part of an agent has it."""
        self._let_go()
        if (held := _locked(self.path)) is None:
            return
        try:
            with contextlib.suppress(OSError):
                if set(os.listdir(self.path)) <= {_NOTE}:
                    (self.path / _NOTE).unlink(missing_ok=True)
                    self.path.rmdir()
        finally:
            os.close(held)

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def sweep_short_directories() -> None:
    """Removes those of killed agents of this account that have no workers any more."""
    place = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for path in [entry for entry in place.iterdir() if (name := _NAME.fullmatch(entry.name)) and name[1] == str(os.getuid())]:
            if (held := _locked(path)) is None:
                continue
            try:
                if _is_left(path):
                    logger.info("removing %s, which a killed agent left", path)
                    remove_tree(path)
            finally:
                os.close(held)


def _is_left(path: Path) -> bool:
    """True if no worker uses a short directory that no agent holds: none carries the mark of its agent. False if the directory is
    of another namespace of processes, whose workers cannot be seen from here."""
    try:
        directory, namespace = (path / _NOTE).read_text().splitlines()
    except (OSError, ValueError):  # of an earlier version, or of containers
        return False
    return namespace == _namespace() != "" and not marked(Path(directory))


def _namespace() -> str:
    """Namespace of processes; empty if the system has none: then no agent's workers are known to have ended."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _locked(path: Path) -> int | None:
    """Descriptor of a directory of ours that no agent holds, locked; None if one does, or it is not ours."""
    if not is_ours(path):
        return None
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def make_private(path: Path, *, open_for_passing: bool = False) -> None:
    """Makes a directory that only this user can write to; in a shared temporary directory, others may have made a directory or
    a link of that name first. `open_for_passing`: other accounts may pass through to their own directories in it. Raises
    OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours(path):
        raise PermissionError(f"{path} is not a directory that only this user can write to; remove it, and start the agent again")
    path.chmod(PASSING if open_for_passing else 0o700)


def is_ours(path: Path) -> bool:
    """True if the path is a directory, no link, and no other user can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
