"""The key of the secrets, and its file: the present key first, and behind it those that it takes the place of, as long as
something is sealed with one of them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tenuto.kernel.private_files import make_private, write_private
from tenuto.kernel.settings import SettingsError

KEY_BYTES = 32
KEYS_MAX = 16
"""Most keys in the file: one, and one more for each change that was not completed."""
NONCE_BYTES, TAG_BYTES = 12, 16


class SecretKeyError(SettingsError):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


class Keys:
    """Keys of one process. The file is read, or made, when a key is first needed, and again if none of the known keys fits."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._keys: tuple[bytes, ...] = ()

    def load(self, *, again: bool = False) -> tuple[bytes, ...]:
        """Keys, the present one first. Raises SecretKeyError."""
        if again or not self._keys:
            self._keys = _load_or_make(self._file)
        return self._keys

    def begin_change(self) -> None:
        """Puts a new key in front of the file's, so that every process can read what is sealed with it from now on. Raises
        SecretKeyError."""
        known = self.load(again=True)
        self._replace((os.urandom(KEY_BYTES), *known) if len(known) < KEYS_MAX else known)

    def end_change(self) -> None:
        """Removes all keys but the present one from the file. Raises SecretKeyError."""
        self._replace(self.load()[:1])

    def _replace(self, keys: tuple[bytes, ...]) -> None:
        assert self._file is not None
        try:
            write_private(self._file, b"".join(keys))
        except OSError as error:
            raise SecretKeyError(
                f"The key of the secrets, {self._file}, cannot be written: {error.strerror}; the one in the file stays valid."
            ) from error
        self._keys = keys


def sealed(key: bytes, about: str, value: str) -> bytes:
    """The value, encrypted by AES-GCM for this name: nonce, tag and ciphertext."""
    nonce = os.urandom(NONCE_BYTES)
    # In this order since the first release; the library itself puts the tag behind.
    encrypted = AESGCM(key).encrypt(nonce, value.encode(), about.encode())
    return nonce + encrypted[-TAG_BYTES:] + encrypted[:-TAG_BYTES]


def opened(key: bytes, about: str, value: bytes) -> str:
    """The decrypted value. Raises ValueError if it was changed, or sealed with another key or for another name."""
    nonce, tag = value[:NONCE_BYTES], value[NONCE_BYTES : NONCE_BYTES + TAG_BYTES]
    try:
        return AESGCM(key).decrypt(nonce, value[NONCE_BYTES + TAG_BYTES :] + tag, about.encode()).decode()
    except InvalidTag:
        raise ValueError("It was changed, or sealed with another key or for another name.") from None


def _load_or_make(path: Path | None) -> tuple[bytes, ...]:
    """Keys from the file, which is made if it does not exist. Raises SecretKeyError."""
    if path is None:
        raise SecretKeyError("TENUTO_SECRET_KEY_FILE is not set: name the file of the users' secrets for gateway and launcher.")
    try:
        make_private(path, os.urandom(KEY_BYTES))
        content = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise SecretKeyError(f"The key of the secrets, {path}, cannot be used: {error.strerror}.") from error
    if mode & 0o077:
        raise SecretKeyError(f"The key of the secrets, {path}, can be read by other users; run `chmod 600 {path}`.")
    if not content or len(content) % KEY_BYTES or len(content) > KEYS_MAX * KEY_BYTES:
        raise SecretKeyError(f"The key of the secrets, {path}, is damaged: it has {len(content)} bytes, not {KEY_BYTES}.")
    return tuple(content[first : first + KEY_BYTES] for first in range(0, len(content), KEY_BYTES))
