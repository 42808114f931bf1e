"""Directories that only the agent's own account can write to, some of them under the usual temporary directory."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from tenuto.kernel.account import PASSING


def short_directory(directory: Path) -> Path:
    """Directory under the usual temporary directory, for paths that `directory` is too deep for. It is the same for every
    agent on `directory`."""
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tenuto-{os.getuid()}-{name}"


def make_private(path: Path, *, open_for_passing: bool = False) -> None:
    """Makes a directory that only this user can write to; in a shared temporary directory, others may have made a directory or
    a link of that name first. `open_for_passing`: other accounts may pass through to their own directories in it. Raises
    OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours(path):
        raise PermissionError(f"{path} is not a directory that only this user can write to; remove it, and start the agent again")
    path.chmod(PASSING if open_for_passing else 0o700)


def is_ours(path: Path) -> bool:
    """True if the path is a directory, no link, and nobody else can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
