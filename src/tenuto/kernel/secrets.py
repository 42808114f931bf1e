"""Users' secrets: their values are encrypted in a table of their own, with a key from a file that only services read. They are
never part of an event, a view or a log line."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from Crypto.Cipher import AES

from tenuto.kernel.private_files import make_private
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
    def __init__(self, pool: Any, key_file: Path | None) -> None:
        """`pool`: asyncpg's. The key is read, or made, when it is first needed; without a file there are no secrets."""
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
        """Removes a secret; False if there was none."""
        gone = await self._pool.fetch("DELETE FROM secrets WHERE user_name = $1 AND name = $2 RETURNING name", user, name)
        return bool(gone)

    async def values(self, references: Iterable[str]) -> dict[str, str]:
        """Values by reference (`user/name`); missing secrets, and those sealed with another key, are left out. Raises
        SecretKeyError."""
        self._load_key()  # outside the loop below: its errors concern all secrets, not one
        pairs = [tuple(reference.split("/", 1)) for reference in sorted(set(references))]
        rows = await self._pool.fetch(
            """SELECT user_name, name, value FROM secrets
               JOIN unnest($1::text[], $2::text[]) AS wanted (user_name, name) USING (user_name, name)""",
            [user for user, _ in pairs],
            [name for _, name in pairs],
        )
        found = {}
        for user, name, sealed in rows:
            with contextlib.suppress(ValueError):  # sealed with another key
                found[f"{user}/{name}"] = self._opened(user, name, bytes(sealed))
        return found

    async def forget(self, user: str) -> None:
        """Removes all secrets of a user."""
        await self._pool.execute("DELETE FROM secrets WHERE user_name = $1", user)

    def _sealed(self, user: str, name: str, value: str) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        ciphertext, tag = self._cipher(nonce, user, name).encrypt_and_digest(value.encode())
        return nonce + bytes(tag) + bytes(ciphertext)

    def _opened(self, user: str, name: str, sealed: bytes) -> str:
        """The decrypted value. Raises ValueError if it was changed, or sealed with another key or for another name."""
        nonce, tag = sealed[:NONCE_BYTES], sealed[NONCE_BYTES : NONCE_BYTES + TAG_BYTES]
        opened = self._cipher(nonce, user, name).decrypt_and_verify(sealed[NONCE_BYTES + TAG_BYTES :], tag)
        return bytes(opened).decode()

    def _load_key(self) -> bytes:
        if not self._key:
            self._key = _load_or_make(self._key_file)
        return self._key

    def _cipher(self, nonce: bytes, user: str, name: str) -> Any:
        cipher = AES.new(self._load_key(), AES.MODE_GCM, nonce=nonce)
        cipher.update(f"{user}/{name}".encode())
        return cipher


def _load_or_make(path: Path | None) -> bytes:
    """Key from the file, which is made if it does not exist. Raises SecretKeyError."""
    if path is None:
        raise SecretKeyError("TENUTO_SECRET_KEY_FILE is not set: name the file of the users' secrets for gateway and launcher.")
    try:
        make_private(path, os.urandom(KEY_BYTES))
        key = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise SecretKeyError(f"The key of the secrets, {path}, cannot be used: {error.strerror}.") from error
    if mode & 0o077:
        raise SecretKeyError(f"The key of the secrets, {path}, can be read by other users; run `chmod 600 {path}`.")
    if len(key) != KEY_BYTES:
        raise SecretKeyError(f"The key of the secrets, {path}, is damaged: it has {len(key)} bytes, not {KEY_BYTES}.")
    return key
