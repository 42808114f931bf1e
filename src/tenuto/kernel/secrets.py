"""Users' secrets: their values are encrypted in a table of their own, with a key from a file that only services read. They are
never part of an event, a view or a log line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.kernel.secret_keys import Keys, SecretKeyError, opened, sealed

__all__ = ["PER_USER_MAX", "KeyChange", "SecretKeyError", "Secrets", "StoredSecret"]

PER_USER_MAX = 100
CHANGED_AT_ONCE = 500
"""Secrets that are read in one piece while the key is changed."""


@dataclass(frozen=True)
class StoredSecret:
    name: str
    updated_us: int


@dataclass(frozen=True)
class KeyChange:
    secrets: int
    """Sealed with the new key."""
    unreadable: int
    """Sealed with a key that the file does not have: they were lost before."""


class Secrets:
    def __init__(self, pool: Any, key_file: Path | None) -> None:
        """`pool`: asyncpg's. The key is read, or made, when it is first needed; without a file there are no secrets."""
        self._pool, self._keys = pool, Keys(key_file)

    async def names(self, user: str) -> list[StoredSecret]:
        rows = await self._pool.fetch("SELECT name, updated_us FROM secrets WHERE user_name = $1 ORDER BY name", user)
        return [StoredSecret(row["name"], row["updated_us"]) for row in rows]

    async def set(self, user: str, name: str, value: str, time_us: int) -> None:
        await self._pool.execute(
            """INSERT INTO secrets VALUES ($1, $2, $3, $4)
               ON CONFLICT (user_name, name) DO UPDATE SET value = excluded.value, updated_us = excluded.updated_us""",
            user,
            name,
            self._sealed(user, name, value),
            time_us,
        )

    async def remove(self, user: str, name: str) -> bool:
        """Removes a secret; False if there was none."""
        gone = await self._pool.fetch("DELETE FROM secrets WHERE user_name = $1 AND name = $2 RETURNING name", user, name)
        return bool(gone)

    async def values(self, references: Iterable[str]) -> dict[str, str]:
        """Values by reference (`user/name`); missing secrets, and those sealed with another key, are left out. Raises
        SecretKeyError."""
        self._keys.load()  # outside the loop below: its errors concern all secrets, not one
        pairs = [tuple(reference.split("/", 1)) for reference in sorted(set(references))]
        rows = await self._pool.fetch(
            """SELECT user_name, name, value FROM secrets
               JOIN unnest($1::text[], $2::text[]) AS wanted (user_name, name) USING (user_name, name)""",
            [user for user, _ in pairs],
            [name for _, name in pairs],
        )
        found = {}
        for user, name, value in rows:
            with contextlib.suppress(ValueError):  # sealed with another key
                found[f"{user}/{name}"] = self._opened(user, name, bytes(value))
        return found

    async def forget(self, user: str) -> None:
        """Removes all secrets of a user."""
        await self._pool.execute("DELETE FROM secrets WHERE user_name = $1", user)

    async def change_key(self) -> KeyChange:
        """Seals all secrets with a new key. May be broken off anywhere, and begun again: until all are sealed anew, the file has
        the old keys as well. Raises SecretKeyError."""
        self._keys.begin_change()
        count, unreadable, last = 0, 0, ("", "")
        while True:
            rows = await self._pool.fetch(
                """SELECT user_name, name, value FROM secrets WHERE (user_name, name) > ($1, $2)
                   ORDER BY user_name, name LIMIT $3""",
                *last,
                CHANGED_AT_ONCE,
            )
            for user, name, value in rows:
                anew = self._sealed_anew(user, name, bytes(value))
                if anew is None:
                    unreadable += 1
                    continue
                # What was set meanwhile is sealed with the new key already.
                await self._pool.execute(
                    "UPDATE secrets SET value = $4 WHERE user_name = $1 AND name = $2 AND value = $3", user, name, value, anew
                )
                count += 1
            if len(rows) < CHANGED_AT_ONCE:
                break
            last = (rows[-1]["user_name"], rows[-1]["name"])
        self._keys.end_change()
        return KeyChange(count, unreadable)

    def _sealed_anew(self, user: str, name: str, value: bytes) -> bytes | None:
        """None: no key of the file fits."""
        try:
            return self._sealed(user, name, self._opened(user, name, value))
        except ValueError:
            return None

    def _sealed(self, user: str, name: str, value: str) -> bytes:
        return sealed(self._keys.load()[0], f"{user}/{name}", value)

    def _opened(self, user: str, name: str, value: bytes) -> str:
        """Raises ValueError, and SecretKeyError."""
        for key in self._keys.load():
            with contextlib.suppress(ValueError):
                return opened(key, f"{user}/{name}", value)
        for key in self._keys.load(again=True):  # another process may have changed it
            with contextlib.suppress(ValueError):
                return opened(key, f"{user}/{name}", value)
        raise ValueError("sealed with another key")
