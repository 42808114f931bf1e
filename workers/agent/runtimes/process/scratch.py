"""A temporary directory for each allocation (TMPDIR): what a killed process leaves there goes with the allocation.

It is in the run's directory, on the agent's disk. Programs make unix sockets in TMPDIR, and the kernel takes few bytes for their
paths; so where the agent's directory is deep, and where the agent was given a TMPDIR itself, it is under the usual temporary
directory instead, beside those of the agent's other runs.
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
"""What Python and C programs look for. A configuration that sets one of them has its way."""
PATH_BYTES_MAX = 64
"""The kernel takes 107 for a socket; multiprocessing and torch add 34 of their own, and other libraries a little more."""
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""What torch.compile keeps for the next process. By default in TMPDIR, where no later trial would find it."""


def short_directory(directory: Path) -> Path:
    """The same for every agent on `directory`: under the usual temporary directory, for what `directory` is too deep for."""
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tenuto-{os.getuid()}-{name}"


def make_private(path: Path, *, open_for_passing: bool = False) -> None:
    """Anyone may make a directory or a link of that name in a shared temporary directory first. `open_for_passing`: other
    accounts may go through to what they have in it. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _ours(path):
        raise PermissionError(f"{path} is no directory that only this user can write to; remove it, and start the agent again")
    path.chmod(PASSING if open_for_passing else 0o700)


class Scratch:
    """The temporary directories of one agent's runs. `base`: the agent's own environment. `account`: of its workers, where that
    is another one."""

    def __init__(self, directory: Path, base: Mapping[str, str], account: Account | None = None) -> None:
        self._runs, self._short, self._base = directory / "runs", short_directory(directory) / "tmp", base
        self._account = account

    def make(self, allocation_id: str) -> Path:
        """Raises OSError."""
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
        """Its processes are gone."""
        shutil.rmtree(self._runs / allocation_id / "tmp", ignore_errors=True)
        if _ours(self._short.parent):
            shutil.rmtree(self._short / allocation_id, ignore_errors=True)

    def sweep(self, live: Collection[str]) -> None:
        """Removes what earlier agents on this directory left of runs that nobody carries on."""
        short = _entries(self._short) if _ours(self._short.parent) else ()
        for path in [*_entries(self._runs), *short]:
            if path.name not in live:
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        if not _ours(self._short.parent):
            return
        with contextlib.suppress(OSError):  # workers that go on have theirs there
            self._short.rmdir()
            self._short.parent.rmdir()


def variables(path: Path, chosen: Mapping[str, str]) -> dict[str, str]:
    """`chosen`: what the configuration sets."""
    return {} if any(chosen.get(name) for name in VARIABLES) else {"TMPDIR": str(path)}


def kept_variables(account_name: str | None = None) -> dict[str, str]:
    """What torch would choose itself if TMPDIR were the usual one: kept from trial to trial. `account_name`: that workers run
    as."""
    try:
        user = account_name or getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return {COMPILED: str(Path(tempfile.gettempdir()) / f"torchinductor_{name}")}


def _ours(path: Path) -> bool:
    """It is there, is no link, and nobody else can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _entries(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(directory.iterdir())
