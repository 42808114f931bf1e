"""Connections to hosts: opened by key, to hosts whose own keys are known, kept while they hold, and asked one question at a time.
Everything that a host says is bounded, and read as data of a stranger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import asyncssh

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners.ssh.inventory import Host, SshSettings

CONNECT_SECONDS_MAX = 10.0
"""Longest time until a host has let the launcher in: a host that is down answers nothing."""
ANSWER_SECONDS_MAX = 45.0
"""Longest time for one answer: above the 10 s for another request there, and 30 s for `import tenuto` on a slow disk."""
ANSWER_BYTES_MAX = 4 << 20
"""Most that a host may answer: its log's last lines, or two hundred nodes."""
KEEPALIVE_SECONDS = 15
"""A connection that is dead is noticed after three of these."""
WORDS_MAX = 300
MARK = b"TENUTO-ANSWER "
PARTS = ("host_files.py", "host_install.py", "host.py")
"""Program of the host: they are read in this order, into one module."""
PUT_SECONDS_MAX = 240.0
"""Longest time for the sending of one file, below that of a start. What has arrived is kept, and the next try goes on there."""
BLOCK_BYTES = 256 << 10
logging.getLogger("asyncssh").setLevel(logging.WARNING)  # it tells of every connection


class HostAway(Exception):
    """A host is unreachable or refuses. `str(error)` is one sentence for the user. `refused`: a retry does not help."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused

    def as_provisioners(self) -> ProvisionerError:
        return ProvisionerError(str(self), "refused" if self.refused else "unreachable")


class Connections:
    def __init__(self, settings: SshSettings, secrets: Path) -> None:
        self._settings, self._secrets = settings, secrets
        self._parts = [files(__package__).joinpath(name).read_bytes() for name in PARTS]
        self._open: dict[str, asyncssh.SSHClientConnection] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ask(self, host: Host, request: Mapping[str, object]) -> dict[str, Any]:
        """Answer of the host. Raises HostAway."""
        async with self._locks.setdefault(host.known_as, asyncio.Lock()):
            kept = host.known_as in self._open
            connection = await self._connection(host)
            try:
                return await self._answer(connection, host, request)
            except (asyncssh.Error, OSError, TimeoutError) as error:
                await self._drop(host)
                # A kept connection may have been dead, and nothing of the request may have arrived: requests may be repeated.
                if not kept or isinstance(error, TimeoutError):
                    raise HostAway(f"Host {host.known_as} does not answer: {_words(error)}.") from None
            connection = await self._connection(host)
            try:
                return await self._answer(connection, host, request)
            except (asyncssh.Error, OSError, TimeoutError) as error:
                await self._drop(host)
                raise HostAway(f"Host {host.known_as} does not answer: {_words(error)}.") from None

    async def put(self, host: Host, request: Mapping[str, object], file: Path, offset: int) -> int:
        """Bytes of the file that the host has after the rest of it was sent. Beside other questions to the host, which must not
        wait for it. Raises HostAway and OSError."""
        async with self._locks.setdefault(host.known_as, asyncio.Lock()):
            connection = await self._connection(host)
        with file.open("rb") as opened:
            opened.seek(offset)
            try:
                said = await self._answer(connection, host, request, opened, PUT_SECONDS_MAX)
            except TimeoutError:
                raise HostAway(
                    f"Host {host.known_as} takes {file.name} slowly; the rest of it is sent by the next try."
                ) from None
            except (asyncssh.Error, BrokenPipeError, ConnectionError) as error:
                raise HostAway(f"Host {host.known_as} was cut off while {file.name} was sent: {_words(error)}.") from None
        if said.get("busy"):
            raise HostAway(f"Host {host.known_as} is sent {file.name} by another request; this one goes on after it.")
        return int(said.get("had") or 0)

    async def close(self) -> None:
        for connection in self._open.values():
            connection.abort()
        self._open.clear()

    async def _drop(self, host: Host) -> None:
        connection = self._open.pop(host.known_as, None)
        if connection is not None:
            connection.abort()

    async def _connection(self, host: Host) -> asyncssh.SSHClientConnection:
        """Raises HostAway."""
        found = self._open.get(host.known_as)
        if found is not None and not found.is_closed():
            return found
        key, known_hosts = await asyncio.to_thread(self._credentials)
        user = host.user or self._settings.user
        own = {"username": user} if user else {}
        where = f"Host {host.known_as}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                made = await asyncssh.connect(
                    host.address, host.port, client_keys=[key], known_hosts=known_hosts, config=None, agent_path=None,
                    preferred_auth=("publickey",), keepalive_interval=KEEPALIVE_SECONDS, **own,
                )  # fmt: skip
        except asyncssh.HostKeyNotVerifiable:
            raise HostAway(
                f"{where} shows a key that {self._settings.known_hosts} does not have, so nothing was sent: if the host is right,"
                f" add the line that `ssh-keyscan -p {host.port} {host.address}` prints.",
                refused=True,
            ) from None
        except asyncssh.PermissionDenied:
            raise HostAway(
                f"{where} does not let {user or 'the launcher'} in by the key {self._settings.key}: add its public part to"
                " ~/.ssh/authorized_keys there.",
                refused=True,
            ) from None
        except TimeoutError:
            raise HostAway(f"{where} cannot be reached within {CONNECT_SECONDS_MAX:.0f} s.") from None
        except (asyncssh.Error, OSError) as error:
            raise HostAway(f"{where} cannot be reached: {_words(error)}.") from None
        self._open[host.known_as] = made
        return made

    def _credentials(self) -> tuple[asyncssh.SSHKey, asyncssh.SSHKnownHosts]:
        """Raises HostAway."""
        name = self._settings.key
        try:
            key = asyncssh.read_private_key(self._secrets / name)
            name = self._settings.known_hosts
            return key, asyncssh.read_known_hosts(str(self._secrets / name))
        except OSError as error:
            raise HostAway(f"File {name} of the launcher's secrets cannot be read: {error.strerror}.", refused=True) from None
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):  # the library's words may quote the file
            raise HostAway(
                f"File {name} cannot be used: it must be of OpenSSH's form, a key without passphrase.", refused=True
            ) from None

    async def _answer(
        self,
        connection: asyncssh.SSHClientConnection,
        host: Host,
        request: Mapping[str, object],
        more: BinaryIO | None = None,
        seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> dict[str, Any]:
        """`more`: what is sent after the request. Raises HostAway, asyncssh.Error, OSError and TimeoutError."""
        command = self._settings.command(host, [len(part) for part in self._parts])
        async with asyncio.timeout(seconds_max):
            async with connection.create_process(command, encoding=None) as process:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it ended early: its words say why
                    process.stdin.write(b"".join(self._parts) + json.dumps(request).encode() + b"\n")
                    while more is not None and (block := await asyncio.to_thread(more.read, BLOCK_BYTES)):
                        process.stdin.write(block)
                        await process.stdin.drain()
                    process.stdin.write_eof()
                said = b""
                while len(said) <= ANSWER_BYTES_MAX and (block := await process.stdout.read(65_536)):
                    said += block
                errors = await process.stderr.read(4_096) if process.stdout.at_eof() else b""
                if len(said) > ANSWER_BYTES_MAX:
                    process.close()
        return _read(host, said, errors)


def _read(host: Host, said: bytes, errors: bytes) -> dict[str, Any]:
    """Raises HostAway."""
    lines = [line for line in said.splitlines() if line.startswith(MARK)]
    try:
        found = json.loads(lines[-1].removeprefix(MARK)) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no answer"]
        raise HostAway(f"Host {host.known_as} cannot run Python as it should: {visible(last[0])[:WORDS_MAX].rstrip('.')}.")
    if "error" in found:
        raise HostAway(f"Host {host.known_as} refuses: {visible(str(found['error']))[:WORDS_MAX].rstrip('.')}.", refused=True)
    return found


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {ANSWER_SECONDS_MAX:.0f} s"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return visible(text or type(error).__name__)[:WORDS_MAX].rstrip(".")
