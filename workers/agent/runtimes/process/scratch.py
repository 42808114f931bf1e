"""A temporary directory for each allocation (TMPDIR): files that a killed process leaves there are removed with the allocation.

It is in the run's directory, on the agent's disk. Programs make unix sockets in TMPDIR, and the kernel accepts few bytes for
their paths; so if the agent's path is long, or the agent itself was given a TMPDIR, it is under the usual temporary directory
instead, beside those of the agent's other runs.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tenuto.kernel.account import PASSING, Account
from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.agent.runtimes.private_directories import ShortDirectory, is_ours

VARIABLES = ("TMPDIR", "TEMP", "TMP")
"""Variables that Python and C programs read. A configuration that sets one of them takes precedence."""
PATH_BYTES_MAX = 64
"""Longest path of a temporary directory: the kernel accepts 107 bytes for a socket; multiprocessing and torch add 34 of their
own, and other libraries a little more."""
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""Variable of torch.compile's cache for later processes. By default the cache is in TMPDIR, where no later trial would find
it."""


class Scratch:
    """Temporary directories of one agent's runs. `base`: environment of the agent. `account`: account of its workers, if it is
    another one."""

    def __init__(self, directory: Path, base: Mapping[str, str], account: Account | None = None) -> None:
        self._runs, self._base = directory / "runs", base
        self._taken = ShortDirectory(directory)
        self._short = self._taken.path / "tmp"
        self._account = account

    def make(self, allocation_id: str) -> Path:
        """Temporary directory of an allocation. Raises OSError."""
        path = self._runs / allocation_id / "tmp"
        if len(os.fsencode(path)) > PATH_BYTES_MAX or any(self._base.get(name) for name in VARIABLES):
            with contextlib.suppress(OSError):
                self._taken.take(open_for_passing=self._account is not None)
                path = self._short / allocation_id
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._account is not None:
            if path.parent == self._short:
                self._short.chmod(PASSING)
            self._account.own(path, 0o700)
        return path

    def remove(self, allocation_id: str) -> None:
        """Removes the directory of an allocation whose processes are gone."""
        remove_tree(self._runs / allocation_id / "tmp")
        if is_ours(self._short.parent):
            remove_tree(self._short / allocation_id)

    def sweep(self, live: Collection[str]) -> None:
        """Removes directories that earlier agents left of runs that no agent carries on."""
        short = _entries(self._short) if is_ours(self._short.parent) else ()
        for path in [*_entries(self._runs), *short]:
            if path.name not in live:
                remove_tree(path)

    def close(self) -> None:
        if not is_ours(self._short.parent):
            return
        with contextlib.suppress(OSError):  # not empty while workers go on
            self._short.rmdir()
        self._taken.leave()


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


def _entries(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from list(directory.iterdir())
