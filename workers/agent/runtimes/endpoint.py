"""The agent's unix socket, which only the account of its workers can reach."""

from __future__ import annotations

import os
from pathlib import Path

from tenuto.kernel.account import Account
from tenuto.workers.agent.runtimes.private_directories import ShortDirectory, short_directory, sweep_short_directories

SOCKET_PATH_BYTES_MAX = 100
"""Longest path of a socket in the agent's directory; the kernel accepts 107 bytes. A longer path moves to the temporary
directory."""


def socket_path(directory: Path) -> Path:
    """Path of the socket. It is the same for every agent on this directory, so that workers find the next agent at the address
    of the last one."""
    path = directory / "agent.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    return short_directory(directory) / "agent.sock"


class UnixEndpoint:
    for_containers = False
    """True: containers have the directory of the socket mounted."""

    def __init__(self, directory: Path, account: Account | None = None) -> None:
        """`directory`: the agent's. `account`: account of the workers, if it is not the agent's own."""
        self._path, self._account = socket_path(directory), account
        self._short = ShortDirectory(directory, for_containers=self.for_containers) if self._path.parent != directory else None
        """Directory of the socket, if the agent's own is too deep for it."""

    @property
    def address(self) -> str:
        return f"unix:{self._path}"

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address,)

    def prepare(self) -> None:
        """Prepares the directory of the socket. Raises OSError."""
        sweep_short_directories()
        if self._short is not None:
            self._short.take(open_for_passing=self._account is not None)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)

    def opened(self) -> None:
        """Opens the socket to the workers' account only. Raises OSError."""
        if self._account is not None:
            self._account.own(self._path, 0o600)
        self._path.chmod(0o600)

    def closed(self) -> None:
        """Removes what listening left."""
        self._path.unlink(missing_ok=True)
        if self._short is not None and not self.for_containers:
            self._short.leave()

    def forsake(self, *, in_use: bool) -> None:
        """Removes the directory of the socket, unless containers have it mounted (`in_use`)."""
        if self._short is not None and not in_use:
            self._short.leave()
