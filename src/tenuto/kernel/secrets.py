"""Values of users' secrets: encrypted in a table of their own, with a key from a file that only services read. They are never
part of an event, a view or a log line."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Crypto.Cipher import AES

from tenuto.kernel.settings import SettingsError

KEY_BYTES = 32
NONCE_BYTES, TAG_BYTES = 12, 16
PER_USER_MAX = 100


class SecretKeyError(SettingsError):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


@dataclass(frozen=True)
class Stored:
    name: str
    updated_us: int


class Secrets:
    def __init__(self, pool: Any, key_file: Path) -> None:
        """`pool`: of asyncpg. The key is read, or made, when it is first needed."""
        self._pool, self._key_file = pool, key_file
        self._key = b""

    async def names(self, user: str) -> list[Stored]:
        rows = await self._pool.fetch("SELECT name, updated_us FROM secrets WHERE user_name = $1 ORDER BY name", user)
        return [Stored(row["name"], row["updated_us"]) for row in rows]

    async def set(self, user: str, name: str, value: str, time_us: int) -> None:
        sealed = self._sealed(user, name, value)
        await self._pool.execute(
            """INSERT INTO secrets VALUES ($1, $2, $3, $4)
               ON CONFLICT (user_name, name) DO UPDATE SET value = excluded.value, updated_us = excluded.updated_us""",
            user,
            name,
            sealed,
            time_us,
        )

    async def remove(self, user: str, name: str) -> bool:
        """False: there was none."""
        gone = await self._pool.fetch("DELETE FROM secrets WHERE user_name = $1 AND name = $2 RETURNING name", user, name)
        return bool(gone)

    async def values(self, references: Iterable[str]) -> dict[str, str]:
        """By reference (`user/name`); those that are not there, or cannot be read with this key, are left out."""
        found = {}
        for reference in sorted(set(references)):
            user, _, name = reference.partition("/")
            sealed = await self._pool.fetchval("SELECT value FROM secrets WHERE user_name = $1 AND name = $2", user, name)
            if sealed is not None:
                with contextlib.suppress(ValueError):  # sealed with another key
                    found[reference] = self._opened(user, name, bytes(sealed))
        return found

    def _sealed(self, user: str, name: str, value: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        ciphertext, tag = self._cipher(nonce, user, name).encrypt_and_digest(value.encode())
        return nonce + bytes(tag) + bytes(ciphertext)

    def _opened(self, user: str, name: str, sealed: bytes) -> str:
        """Raises ValueError where it was changed, or sealed with another key or for another name."""
        nonce, tag = sealed[:NONCE_BYTES], sealed[NONCE_BYTES : NONCE_BYTES + TAG_BYTES]
        opened = self._cipher(nonce, user, name).decrypt_and_verify(sealed[NONCE_BYTES + TAG_BYTES :], tag)
        return bytes(opened).decode()

    def _cipher(self, nonce: bytes, user: str, name: str) -> Any:
        if not self._key:
            self._key = _load_or_make(self._key_file)
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce)
        cipher.update(f"{user}/{name}".encode())
        return cipher


def _load_or_make(path: Path) -> bytes:
    """Raises SecretKeyError."""
    try:
        if not path.exists():
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, os.urandom(KEY_BYTES))
                os.fsync(descriptor)
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                os.close(descriptor)
                temporary.unlink(missing_ok=True)
        key = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise SecretKeyError(f"The key of the secrets, {path}, cannot be used: {error.strerror}.") from error
    if mode & 0o077:
        raise SecretKeyError(f"The key of the secrets, {path}, can be read by other users; run `chmod 600 {path}`.")
    if len(key) != KEY_BYTES:
        raise SecretKeyError(f"The key of the secrets, {path}, is damaged: it has {len(key)} bytes, not {KEY_BYTES}.")
    return key
