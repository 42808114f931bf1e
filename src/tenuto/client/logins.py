"""Tokens of `tenuto login`, one per cluster, in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tenuto.client.errors import ClientError
from tenuto.kernel.private_files import write_private


def file() -> Path:
    """TENUTO_LOGINS_FILE, else `tenuto/logins.json` among the user's configuration."""
    if named := os.environ.get("TENUTO_LOGINS_FILE"):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "tenuto" / "logins.json"


def find(url: str) -> str:
    """The token for the cluster at exactly this address; empty without one. Raises ClientError."""
    return _read(file()).get(url.rstrip("/"), "")


def keep(url: str, token: str) -> Path:
    """Raises ClientError."""
    with _changing() as known:
        known[url.rstrip("/")] = token
    return file()


def forget(url: str) -> bool:
    """Removes the token; False if there was none. Raises ClientError."""
    with _changing() as known:
        return bool(known.pop(url.rstrip("/"), ""))


@contextlib.contextmanager
def _changing() -> Iterator[dict[str, str]]:
    """Content of the file, written back at the end of the block, so that two commands at once lose nothing of each other."""
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = _read(path)
            yield known
            write_private(path, json.dumps(known, indent=1) + "\n")
    except OSError as error:
        why = f"The token cannot be kept in {path}: {error.strerror}; TENUTO_LOGINS_FILE names another file."
        raise ClientError(why) from error


def _read(path: Path) -> dict[str, str]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise ClientError(f"{path} has tokens and can be read by other users (mode {mode:03o}): run `chmod 600 {path}`.")
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClientError(f"The tokens of `tenuto login` cannot be read from {path}: {error.strerror}.") from error
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(item, str) for item in known.values()):
        raise ClientError(f"{path} is damaged: delete it, and sign in again with `tenuto login`.")
    return known
