"""A temporary directory for each allocation (TMPDIR): files that a killed process leaves there are removed with the allocation.

It is in the run's directory, on the agent's disk. Programs make unix sockets in TMPDIR, and the kernel accepts few bytes for
their paths; so if the agent's path is long, or the agent itself was given a TMPDIR, it is under the usual temporary directory
instead, beside those of the agent's other runs.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tenuto.kernel.account import PASSING, Account

VARIABLES = ("TMPDIR", "TEMP", "TMP")
"""Variables that Python and C programs read. A configuration that sets one of them takes precedence."""
PATH_BYTES_MAX = 64
"""Longest path of a temporary directory: the kernel accepts 107 bytes for a socket; multiprocessing and torch add 34 of their
own, and other libraries a little more."""
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""Variable of torch.compile's cache for later processes. By default the cache is in TMPDIR, where no later trial would find
it."""


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
    if not _ours(path):
        raise PermissionError(f"{path} is not a directory that only this user can write to; remove it, and start the agent again")
    path.chmod(PASSING if open_for_passing else 0o700)


class Scratch:
    """Temporary directories of one agent's runs. `base`: environment of the agent. `account`: account of its workers, if it is
    another one."""

    def __init__(self, directory: Path, base: Mapping[str, str], account: Account | None = None) -> None:
        self._runs, self._short, self._base = directory / "runs", short_directory(directory) / "tmp", base
        self._account = account

    def make(self, allocation_id: str) -> Path:
        """Temporary directory of an allocation. Raises OSError."""
        path = self._runs / allocation_id / "tmp"
        if len(os.fsencode(path)) > PATH_BYTES_MAX or any(self._base.get(name) for name in VARIABLES):
            with contextlib.suppress(OSError):
                make_private(self._short.parent, open_for_passing=self._account is not None)
                path = self._short / allocation_id
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._account is not None:
            if path.parent == self._short:
                self._short.chmod(PASSING)
            self._account.own(path, 0o700)
        return path

    def remove(self, allocation_id: str) -> None:
        """Removes the directory of an allocation whose processes are gone."""
        shutil.rmtree(self._runs / allocation_id / "tmp", ignore_errors=True)
        if _ours(self._short.parent):
            shutil.rmtree(self._short / allocation_id, ignore_errors=True)

    def sweep(self, live: Collection[str]) -> None:
        """Removes directories that earlier agents left of runs that no agent carries on."""
        short = _entries(self._short) if _ours(self._short.parent) else ()
        for path in [*_entries(self._runs), *short]:
            if path.name not in live:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        if not _ours(self._short.parent):
            return
        with contextlib.suppress(OSError):  # not empty while workers go on
            self._short.rmdir()
            self._short.parent.rmdir()


def variables(path: Path, chosen: Mapping[str, str]) -> dict[str, str]:
    """Variables that name the temporary directory. `chosen`: variables that the configuration sets."""
    return {} if any(chosen.get(name) for name in VARIABLES) else {"TMPDIR": str(path)}


def kept_variables(account_name: str | None = None) -> dict[str, str]:
    """Variables for caches that torch would choose itself if TMPDIR were the usual one: they are kept from trial to trial.
    `account_name`: account of the workers."""
    try:
        user = account_name or getpass.getuser()
    except (KeyError, OSError):  # in a container, the user may have no name
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return {COMPILED: str(Path(tempfile.gettempdir()) / f"torchinductor_{name}")}


def _ours(path: Path) -> bool:
    """True if the path is a directory, no link, and nobody else can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _entries(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(directory.iterdir())
