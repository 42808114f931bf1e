"""The account that users' code runs as, if it is not the agent's own. Used by the agent, and by programs that start one.

An agent that may change accounts (root, or with the capabilities below) starts workers, their warm processes and the supervisors
of gangs as this account: without supplementary groups, with a home directory of its own, and without rights to the files of the
cluster. Files that such processes write are never trusted: `workers/agent/untrusted_files.py` reads them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.kernel.confinement import confined, sees_private_processes
from tenuto.kernel.storage import confined_paths

PROBE_SECONDS_MAX = 60.0
"""Longest start of an interpreter that imports this package, on a slow disk."""
WORKER_UMASK = 0o007
"""Umask of workers. Their files are closed to every account but their own and its group, through which services of other
accounts may read and delete checkpoints."""
PASSING = 0o711
"""Mode of a directory that other accounts may pass through, but neither list nor change."""
NEEDED = "CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_FOWNER, CAP_DAC_OVERRIDE, CAP_KILL and CAP_SYS_PTRACE"


class NoAccount(RuntimeError):
    """Workers cannot run as the requested account; `str(error)` says why and what to do."""


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    confined: bool = False
    """True: root itself, without its rights over what belongs to others (confinement.py)."""

    @property
    def is_other(self) -> bool:
        """True for another account than this process's own."""
        return not self.confined

    @property
    def hides(self) -> bool:
        """True if its processes hide from each other. An agent that may not look at such processes would not find them."""
        return not self.confined or sees_private_processes()

    def start(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process of this account, with its one group. The first word of `command` is a path. Raises OSError."""
        if self.confined:
            words, variables = confined(command, environment)
            return subprocess.Popen(words, env=variables, **options)
        return subprocess.Popen(
            [*command], env=dict(environment), user=self.uid, group=self.gid, extra_groups=[], umask=WORKER_UMASK, **options
        )

    def own(self, path: Path, mode: int) -> None:
        """Gives a path that this process has just made to the account. The path must be in a directory that only this process
        can write to. Raises OSError."""
        os.chmod(path, mode)
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_enter(self, path: Path) -> bool:
        """True if the account may pass through every directory above `path`, by their permission bits."""
        for part in path.resolve().parents:
            state = part.stat()
            if state.st_uid == self.uid:
                needed = stat.S_IXUSR
            elif state.st_gid == self.gid:
                needed = stat.S_IXGRP
            else:
                needed = stat.S_IXOTH
            if not state.st_mode & needed:
                return False
        return True


def find_account(name: str) -> Account:
    """Account of this name on the machine. Raises NoAccount."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NoAccount(
            f"This machine has no user {name} to run workers as: create it (useradd --system {name}), or name another one."
        ) from None
    if found.pw_uid == 0:
        raise NoAccount(f"Workers cannot run as {name}, which may do everything: name an account without rights, such as nobody.")
    if found.pw_uid == os.geteuid():
        raise NoAccount(f"Workers would run as {name}, which is this process's own account: name another one.")
    return Account(name, found.pw_uid, found.pw_gid)


def confined_root() -> Account:
    """Account of workers that stay root, without root's rights over what belongs to others."""
    return Account(pwd.getpwuid(0).pw_name, 0, os.getegid(), confined=True)


def check_account(account: Account, directory: Path) -> None:
    """Starts one process as the account, in the way that workers are started. Raises NoAccount."""
    if not account.can_enter(directory / "agent"):
        raise NoAccount(
            f"Workers cannot run as {account.name}: it may not enter {directory}, where their files are. Choose a directory "
            "below which others may go, such as /var/lib/tenuto, with --data-dir (TENUTO_DATA_DIRECTORY)."
        )
    said = b"it did not answer within a minute"
    command = [sys.executable, "-P", "-c", "import sys, tenuto.workers.harness.environment; sys.stdin.read()"]
    try:
        process = account.start(
            command,
            _plain(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
        )
    except PermissionError as error:
        if not account.can_enter(Path(sys.executable).resolve()):
            raise _unusable(account, f"it may not enter {Path(sys.executable).resolve().parent}") from error
        raise NoAccount(
            f"Workers cannot run as {account.name}: this process may not change accounts. Start it as root, or with {NEEDED}."
        ) from error
    try:
        # The agent finds what a worker left behind by its environment (`/proc/PID/environ`), which needs CAP_SYS_PTRACE for
        # another account's process; so the probe tries that, too.
        Path(f"/proc/{process.pid}/environ").read_bytes()
    except PermissionError as error:
        raise NoAccount(
            f"Workers cannot run as {account.name}: this process may not look at processes of other accounts, and so could not "
            f"find what they leave behind. Start it with {NEEDED}."
        ) from error
    except OSError:
        pass
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=PROBE_SECONDS_MAX)
        process.kill()
        process.wait()
    if process.returncode != 0:
        last = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise _unusable(account, last)


def _unusable(account: Account, why: str) -> NoAccount:
    return NoAccount(
        f"Workers cannot run as {account.name}: it cannot use {sys.executable} and the installed packages ({why}). Install "
        "Python and Tenuto where every account may read them."
    )


def _plain(environment: os._Environ[str]) -> dict[str, str]:
    return {name: environment[name] for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV") if name in environment}


def home_variables(account: Account, home: Path) -> dict[str, str]:
    """Environment variables that replace the agent's own: libraries keep their caches below this home. Modules that one trial
    installs there are not imported by the next one (PYTHONNOUSERSITE)."""
    return {"HOME": str(home), "USER": account.name, "LOGNAME": account.name, "PYTHONNOUSERSITE": "1"}


def hand_over(anchor: Path, account: Account, parts: Sequence[str] = ()) -> None:
    """Gives a tree that workers of another account have written so far to this account. `anchor` is the operator's; below it,
    links are not followed. Files of a third account are left alone. Raises OSError."""
    with confined_paths.directory(anchor, parts) as descriptor:
        before = os.fstat(descriptor).st_uid
        if before == account.uid:
            return
        for _, parent, item in confined_paths.walk(descriptor):
            state = os.stat(item.name, dir_fd=parent, follow_symlinks=False)
            if state.st_uid == before and not stat.S_ISLNK(state.st_mode):
                os.chown(item.name, account.uid, account.gid, dir_fd=parent, follow_symlinks=False)
        os.fchmod(descriptor, 0o2770)
        os.fchown(descriptor, account.uid, account.gid)
