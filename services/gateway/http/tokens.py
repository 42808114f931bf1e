"""Bearer tokens of the REST door. The cluster's own is made at first start and kept in a file that only its owner can read;
those of users are shown once and kept as hashes."""

from __future__ import annotations

import hmac
import secrets
import stat
from hashlib import sha256
from pathlib import Path

from tenuto.kernel.private_files import make_private
from tenuto.kernel.settings import SettingsError

TOKEN_BYTES = 32
"""Length of a token: 256 bits cannot be guessed."""


class TokenError(SettingsError):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


def load_or_make(path: Path) -> str:
    """The token in the file; makes both if there is none. Raises TokenError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A key must come from the operating system's generator, never from a clock that tests can move.
        make_private(path, f"{make()}\n".encode())
        mode = stat.S_IMODE(path.stat().st_mode)
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise TokenError(f"The token file {path} cannot be used: {error}.") from error
    if mode & 0o077:
        raise TokenError(f"The token file {path} can be read by other users (mode {mode:03o}); run `chmod 600 {path}`.")
    if not token:
        raise TokenError(f"The token file {path} is empty; delete it, and a new token is made at the next start.")
    return token


def make() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_of(header: str) -> str:
    """SHA-256 of the token in an `Authorization` header; empty if it has none. A plain hash is enough for 256 random bits."""
    scheme, _, given = header.partition(" ")
    return sha256(given.strip().encode()).hexdigest() if scheme.lower() == "bearer" and given.strip() else ""


def matches(header: str, token: str) -> bool:
    """True if this `Authorization` header has the token. Takes the same time wherever they differ."""
    scheme, _, given = header.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
