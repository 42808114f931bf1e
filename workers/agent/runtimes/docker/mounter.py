"""The agent's side of the helper that brings directories into running containers (attaching.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence

from tenuto.workers.agent.runtimes.docker import attaching
from tenuto.workers.agent.runtimes.docker.mounts import Bind

MOUNT_SECONDS_MAX = 10.0
"""Longest request: a few milliseconds, unless the directory is on a network disk that does not answer."""


def lack() -> str:
    """Reason why this process cannot mount; empty if it can, as far as can be told without trying."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return "this is not Linux"
    if os.geteuid() != 0:
        return "the agent does not run as root, and only root brings directories into a running container"
    return ""


class Mounter:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()

    async def change(self, pidfd: int, *, attach: Iterable[Bind] = (), detach: Sequence[str] = ()) -> None:
        """Takes the mounts at the paths `detach` away, then brings those of `attach`. `pidfd`: of the container's first process.
        Raises OSError."""
        wanted = [[bind.source, bind.target, bind.writable] for bind in attach]
        request = json.dumps({"attach": wanted, "detach": list(detach)}).encode()
        said = await asyncio.to_thread(self._ask, request, pidfd)
        if said != b"-":
            raise OSError(f"directories cannot be brought into a container: {said[1:].decode(errors='replace')}")

    def _ask(self, request: bytes, pidfd: int) -> bytes:
        with self._lock:
            channel = self._channel or self._start()
            try:
                socket.send_fds(channel, [request], [pidfd])
                if said := channel.recv(8192):
                    return said
            except OSError:
                self._end()
                raise
            self._end()
            raise OSError("the helper that brings directories into containers has ended")

    def _start(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(MOUNT_SECONDS_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", attaching.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        return self._channel

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(MOUNT_SECONDS_MAX)
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._end()
