"""Claims on ports of this machine, so that two clusters that start at the same moment do not both take one."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from tenuto.embedded.files import Lock


class PortClaim:
    """Held until `release`, or the end of the process. It leaves no file: on Linux it is a name in the kernel, one per network
    namespace, as ports are."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._name: socket.socket | None = None
        self._file = Path(tempfile.gettempdir()) / f"tenuto-{os.getuid()}-port-{port}.lock"
        self._lock: Lock | None = None

    def acquire(self) -> bool:
        """Takes the claim; False if another process holds it. Raises OSError."""
        if sys.platform != "linux":
            return self._acquire_file()
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(f"\0tenuto-port-{self._port}")
        except OSError:
            name.close()
            return False
        self._name = name
        return True

    def _acquire_file(self) -> bool:
        lock = Lock(self._file)
        if not lock.acquire():
            return False
        if lock.holder() != os.getpid():  # its holder removed this file meanwhile
            lock.release()
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        if self._name is not None:
            self._name.close()
            self._name = None
        if self._lock is not None:
            self._file.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None
