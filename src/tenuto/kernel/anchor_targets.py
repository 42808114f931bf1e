"""Targets of the log's anchors: a file, an object store, or an HTTP address. Calls block: use a thread."""

from __future__ import annotations

import errno
import http.client
import os
import re
import urllib.request
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import ValidationError

from tenuto.kernel.private_files import give_to_keeper
from tenuto.kernel.settings import SettingsError
from tenuto.kernel.storage.stores import Stores, is_store_name
from tenuto.schemas.anchors import ANCHORS_MAX, Anchor

PREFIX = r"([A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*)?"
"""Pattern of a path inside a store."""
WEBHOOK_SECONDS_MAX = 10.0
STORED_READ_MAX = 500
"""Most anchors read from an object store, newest first; each of them is one request."""
FILE_BYTES_MAX = ANCHORS_MAX * 400
"""Bytes read from the end of an anchor file; a line has about 210 bytes."""


class AnchorTarget(Protocol):
    @property
    def name(self) -> str:
        """Address as the operator wrote it, without its query."""

    def keep(self, anchor: Anchor) -> None:
        """Stores the anchor; returns when it is durable. Raises OSError."""

    def read(self) -> list[Anchor] | None:
        """The newest anchors, in any order; None: this target cannot be read back. Raises OSError, also for content that is no
        anchor."""


def targets(text: str, stores: Stores) -> tuple[AnchorTarget, ...]:
    """Targets of TENUTO_ANCHOR_TARGETS: addresses separated by spaces. Raises SettingsError."""
    return tuple(_target(part, stores) for part in text.split())


def _target(address: str, stores: Stores) -> AnchorTarget:
    parts = _parts(address)
    path = unquote(parts.path)
    if parts.scheme == "file" and not parts.netloc and path.startswith("/"):
        return FileTarget(Path(path))
    if parts.scheme in ("http", "https") and parts.hostname:
        return WebhookTarget(address)
    if parts.scheme == "store" and is_store_name(parts.netloc) and re.fullmatch(PREFIX, path.strip("/")):
        return StoreTarget(stores, parts.netloc, path.strip("/"))
    raise SettingsError(
        f"TENUTO_ANCHOR_TARGETS has {_shown(address)!r}, but must be addresses with spaces between, such as "
        "file:///mnt/elsewhere/anchors.jsonl, store://audit/anchors (a store of `tenuto store create`) or https://host/path."
    )


class FileTarget:
    """A file with one JSON line per anchor. It is of use only on another machine's disk, or if it can only be appended to
    (`chattr +a`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = f"file://{path}"

    def keep(self, anchor: Anchor) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            give_to_keeper(descriptor, self._path.parent)
            size = os.fstat(descriptor).st_size
            whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"  # not so after a full disk or a crash
            line = (b"" if whole else b"\n") + anchor.to_json() + b"\n"
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, "only a part of the line could be written", str(self._path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[Anchor]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - FILE_BYTES_MAX))
                lines = file.read(FILE_BYTES_MAX).splitlines()[1 if size > FILE_BYTES_MAX else 0 :]
        except FileNotFoundError:
            return []
        whole = [line for line in lines[-ANCHORS_MAX:] if line.endswith(b"}")]  # skips lines that were written only in part
        return [_parsed(line, self.name) for line in whole]


_STORED = re.compile(r"[0-9]{20}-[0-9]+\.json")
"""Names of anchors in a store, which may hold other objects, too."""


class StoreTarget:
    """A store with one object per anchor. It is of use only if the store keeps written objects: with object lock, or versions
    that no user may delete."""

    def __init__(self, stores: Stores, store: str, below: str) -> None:
        self._stores, self._store, self._below = stores, store, below
        self.name = f"store://{store}/{below}".rstrip("/")

    def keep(self, anchor: Anchor) -> None:
        store = self._stores.open(self._store, self._below)
        store.put_bytes(f"{anchor.position:020d}-{anchor.time_us}.json", anchor.to_json())

    def read(self) -> list[Anchor]:
        store = self._stores.open(self._store, self._below)
        keys = sorted(entry.key for entry in store.entries("") if _STORED.fullmatch(entry.key))
        return [_parsed(b"".join(store.stream(key)), self.name) for key in keys[-STORED_READ_MAX:]]


class WebhookTarget:
    """An HTTP address that gets a POST with the anchor as its body. The receiver keeps the anchors; `tenuto log verify
    --anchors FILE` compares them."""

    def __init__(self, address: str) -> None:
        self._address, self.name = address, _shown(address)

    def keep(self, anchor: Anchor) -> None:
        try:
            request = urllib.request.Request(self._address, anchor.to_json(), {"Content-Type": "application/json"}, method="POST")
            with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS_MAX):
                pass  # any answer but success raises HTTPError, an OSError
        except (http.client.HTTPException, ValueError) as error:  # the server does not speak HTTP, or the address is invalid
            raise OSError(f"{self.name} did not take it: {str(error) or type(error).__name__}") from error

    def read(self) -> None:
        return None


def _parsed(line: bytes, where: str) -> Anchor:
    try:
        return Anchor.from_json(line)
    except ValidationError:
        raise OSError(f"{where} contains a line that is not an anchor: {line[:80]!r}") from None


def _parts(address: str) -> SplitResult:
    """Address taken apart; nothing of one that cannot be, such as `https://[1`."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _shown(address: str) -> str:
    """Address without query, user and password, which may be secret."""
    parts = _parts(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else address[:40]
