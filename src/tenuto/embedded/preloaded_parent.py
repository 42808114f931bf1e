"""The supervisor's end of the preloaded parent (`preload.py`), and of the processes that were forked from it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from tenuto.embedded.cluster import PARENT_MODULE
from tenuto.embedded.preload import READY, REFUSED, SPACE_VARIABLE, STARTED

REPORT_SECONDS_MAX = 1.0
"""Longest wait for the parent's report of an end that the kernel has told already: a parent that runs sends it at once."""
LEAVE_SECONDS_MAX = 2.0
"""Longest wait for the parent to leave by itself, which takes milliseconds; then it is killed. It holds nothing."""
LINE_BYTES_MAX = 64
TITLE_BYTES = 64
"""Room for the name of a module in the title of a fork that `ps` shows."""
END_UNSEEN = -1_000
"""Value in place of a return code: the process died by a signal while no parent ran that could have told by which."""


class ForkedMember:
    """A process that the parent has forked. It is no child of this process, so its end is told by the kernel (a descriptor of the
    process), and its exit code by the parent, or by the process itself before it left. Used like asyncio's Process."""

    def __init__(self, pid: int, descriptor: int, control: socket.socket, reported: asyncio.Future[int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor, self._control, self._reported = descriptor, control, reported
        self._watching = asyncio.create_task(self._watch())

    async def wait(self) -> int:
        return await asyncio.shield(self._watching)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._descriptor, number)

    async def _watch(self) -> int:
        try:
            await _readable(self._descriptor)
            await asyncio.wait([self._reported], timeout=REPORT_SECONDS_MAX)
            known = self._reported.done() and not self._reported.cancelled()
            code = self._reported.result() if known else self._own_words()
        finally:
            os.close(self._descriptor)
            self._control.close()
        self.returncode = code
        return code

    def _own_words(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(self._control.recv(LINE_BYTES_MAX))
        return END_UNSEEN


class PreloadedParent:
    """One parent, from its start to its end. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], space_bytes: int, directory: Path, log: IO[bytes]) -> None:
        """Parent of forks. `space_bytes`: room that a fork's environment needs beyond this one's."""
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self.ready = asyncio.Event()
        self.refused = ""
        """Reason why it forks nothing; empty if it does."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._heard = bytearray()
        self._reported: dict[int, asyncio.Future[int]] = {}
        """Future exit codes of its forks by process id."""
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                # The zeros make room for the title of a fork, see `process_memory`.
                [sys.executable, "-m", PARENT_MODULE, f"{number:0{TITLE_BYTES}d}"],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, SPACE_VARIABLE: "-" * space_bytes},
                cwd=directory,
                start_new_session=True,
            )
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._hear)
        self._watching = asyncio.create_task(self._watch())

    def is_stopped(self) -> bool:
        """True if it was stopped by a signal or a debugger, and so would not answer."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return False

    async def fork(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> ForkedMember:
        """Forks a process that runs the command. Raises OSError. If it raises or is cancelled, nothing was started."""
        loop = asyncio.get_running_loop()
        control, theirs = socket.socketpair()
        control.setblocking(False)
        descriptor: int | None = None
        try:
            with theirs:
                socket.send_fds(self._channel, [b"f"], [theirs.fileno(), log.fileno()])
            pid = int(await _line(control))
            # It waits for its job, so the id is still its own.
            descriptor = os.pidfd_open(pid)
            reported = self._reported[pid] = loop.create_future()
            job = {"command": list(command), "environment": dict(environment)}
            await loop.sock_sendall(control, json.dumps(job).encode() + b"\n")
            if await _line(control) != STARTED:
                raise ConnectionError("it did not start")
            return ForkedMember(pid, descriptor, control, reported)
        except BaseException as error:
            if descriptor is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)
            control.close()  # a fork that has no job leaves at that
            if isinstance(error, ValueError):
                raise ConnectionError("it gave no process id") from error
            raise

    async def close(self) -> int:
        """Ends the parent; returns its exit code. Its forks go on."""
        if self.ready.is_set() and not self.ended.done() and not self.is_stopped():
            self._channel.shutdown(socket.SHUT_WR)
            await asyncio.wait([self.ended], timeout=LEAVE_SECONDS_MAX)
        self.kill()
        return await asyncio.shield(self.ended)

    def kill(self) -> None:
        self.process.kill()

    async def _watch(self) -> None:
        descriptor = os.pidfd_open(self.process.pid)
        try:
            await _readable(descriptor)
        finally:
            os.close(descriptor)
        self._hear()
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        code = self.process.wait()
        self.ended.set_result(code)
        self._channel.close()
        for reported in self._reported.values():
            reported.cancel()  # no report will come

    def _hear(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._channel.recv(65_536):
                self._heard += piece
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
        *lines, rest = bytes(self._heard).split(b"\n")
        self._heard[:] = rest
        for line in lines:
            word, _, text = line.decode().partition(" ")
            if word == READY:
                self.ready.set()
            elif word == REFUSED:
                self.refused = text
                self.ready.set()
            elif (reported := self._reported.pop(int(word), None)) is not None and not reported.done():
                reported.set_result(int(text))


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[None] = loop.create_future()

    def see() -> None:
        if not seen.done():
            seen.set_result(None)

    loop.add_reader(descriptor, see)
    try:
        await seen
    finally:
        loop.remove_reader(descriptor)


async def _line(control: socket.socket) -> str:
    """A short line, read so that nothing behind it is. Raises ConnectionError at the end of the stream."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = await asyncio.get_running_loop().sock_recv(control, 1)
        if not piece or len(line) > LINE_BYTES_MAX:
            raise ConnectionError("it closed its socket")
        line += piece
    return line.decode().strip()
