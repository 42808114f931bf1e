"""Passwords of users: hashes in a table of their own, made and compared off the event loop, and few at once."""

from __future__ import annotations

import asyncio
import functools
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from tenuto.services.gateway.http.refusals import RequestRefused

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LENGTH_MIN = 10
LENGTH_MAX = 256
"""Most characters: longer passwords are no better, and cost time."""
SCORE_MIN = 3
"""Least score (0 to 4) by the estimate of zxcvbn: at least 10^8 guesses are needed."""
JUDGED_CHARACTERS = 72
"""Most characters that are judged; the rest of a longer password is ignored."""
HASHES_AT_ONCE = 2
"""Most hashes at once: each takes 64 MiB and a tenth of a second of several cores (RFC 9106's second recommendation)."""
WAITING_MAX = 30
"""Most waiting requests; further ones are told to come again, as they would wait for seconds."""
ORPHAN_US = 3_600 * 1_000_000
"""Age at which a hash without a user is removed: it was written, and the request that followed was refused."""
T = TypeVar("T")


class TooManyHashes(RequestRefused):
    """Too many passwords wait to be compared."""

    code = "too_many"

    def __init__(self) -> None:
        super().__init__("Too many people sign in at once; try again in a few seconds.")


class Passwords:
    def __init__(self, pool: Any) -> None:
        """`pool`: asyncpg's."""
        self._pool = pool
        self._threads = ThreadPoolExecutor(HASHES_AT_ONCE, thread_name_prefix="passwords")
        self.waiting = 0
        """Passwords that are being compared or wait for it."""

    async def keep(self, password_id: str, password: str, now_us: int) -> None:
        """Stores the hash of a password. Raises TooManyHashes."""
        kept = await self._run(lambda: _hasher().hash(_normal(password)))
        await self._pool.execute("INSERT INTO passwords (id, hash, created_us) VALUES ($1, $2, $3)", password_id, kept, now_us)

    async def matches(self, password_id: str, password: str) -> bool:
        """True if it is the stored password. Without a stored one (`password_id` empty, or removed) the answer is False, and
        takes as long. Raises TooManyHashes."""
        row = await self._pool.fetchrow("SELECT hash FROM passwords WHERE id = $1", password_id)
        return await self._run(lambda: _verify(row["hash"] if row is not None else "", password))

    async def forget(self, password_id: str) -> None:
        await self._pool.execute("DELETE FROM passwords WHERE id = $1", password_id)

    async def forget_others(self, kept: Iterable[str], now_us: int) -> None:
        """Removes all passwords but these, except new ones that may be about to be set."""
        await self._pool.execute(
            "DELETE FROM passwords WHERE created_us < $1 AND NOT id = ANY($2::text[])", now_us - ORPHAN_US, list(kept)
        )

    async def _run(self, work: Callable[[], T]) -> T:
        if self.waiting >= WAITING_MAX:
            raise TooManyHashes
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self.waiting -= 1

    async def weakness(self, password: str, user: str) -> str:
        """Same as the function `weakness`, but off the event loop. Raises TooManyHashes."""
        return await self._run(lambda: weakness(password, user))


def weakness(password: str, user: str) -> str:
    """Reason why a password is refused, in one sentence; empty if it is accepted. Takes some milliseconds."""
    if len(password) < LENGTH_MIN:
        return f"A password has at least {LENGTH_MIN} characters: take a sentence, or some words that do not belong together."
    if len(password) > LENGTH_MAX:
        return f"A password has at most {LENGTH_MAX} characters."
    if any(ord(character) < 32 for character in password):
        return "A password has no control characters, which no keyboard types at a prompt."
    from zxcvbn import zxcvbn

    judged = re.sub(re.escape(user), "", password, flags=re.IGNORECASE)  # who guesses knows it
    found = zxcvbn(judged[:JUDGED_CHARACTERS] or user, user_inputs=[user, "tenuto"], max_length=JUDGED_CHARACTERS)
    if found["score"] >= SCORE_MIN:
        return ""
    why = str(found["feedback"]["warning"] or "It is made of words and patterns that are tried first.").rstrip(".")
    return f"The password is too easy to guess ({why[:1].lower()}{why[1:]}): add words that do not belong together."


def _normal(password: str) -> str:
    """Password in normal form (RFC 8265: NFC): a letter with an accent is one character on one keyboard and two on another."""
    return unicodedata.normalize("NFC", password)


@functools.cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()


@functools.cache
def _nobodys() -> str:
    """Hash of a random password: compared if no password is stored, so that the time reveals nothing."""
    return _hasher().hash(secrets.token_hex())


def _verify(kept: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(kept or _nobodys(), _normal(password)) and bool(kept)
    except (VerificationError, InvalidHashError):
        return False
