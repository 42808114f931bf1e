"""What every store can do. A store holds bytes under keys such as `blobs/ab/abcd.1-1-1-20`; nothing is ever changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

READ_BYTES = 1 << 20
PART_BYTES = 16 << 20
"""One part of a large upload. S3 allows 10,000 parts, so a file may have 156 GiB; larger ones get larger parts."""
PARTS_MAX = 10_000
BUFFER_BYTES_MAX = 64 << 20
"""File contents that uploads of one checkpoint hold in memory, whatever its size: four parts, or many small files."""
PARALLEL_MAX = 16
"""Requests at once: small files wait for round trips, not for bandwidth."""
CONNECT_SECONDS_MAX = 5.0
READ_SECONDS_MAX = 60.0
"""A store that says nothing for so long is away."""


class StoreError(OSError):
    """The store did not do it. `str(error)` is one sentence: which store, what, why. May be tried again."""


class NotStored(StoreError):
    """There is nothing under that key."""


@dataclass(frozen=True)
class Entry:
    key: str
    size_bytes: int
    modified_us: int
    """By the store's own clock, microseconds since 1970-01-01 UTC."""


class Store(Protocol):
    """Thread-safe. Every method raises StoreError. What was put is there whole and for good when the call returns; a call that
    was cut off leaves the key as it was."""

    @property
    def url(self) -> str:
        """`file:///...`, `s3://bucket/prefix`, `gs://...` or `az://container/prefix`, without a slash at the end."""

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        """`consume`: the source is not needed any more, so a store in the same file system may take it over without a copy."""

    def put_bytes(self, key: str, data: bytes) -> None: ...

    @property
    def packs_small_files(self) -> bool:
        """A request costs far more than a small file's bytes, so that small files are stored together."""

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """From `offset`, at most `size_bytes` (from 1; None: to the end). Raises NotStored, at the latest when the first bytes
        are asked for, also where there is nothing from `offset` on."""

    def local_path(self, key: str) -> Path | None:
        """Where a reader on this machine finds it as a file; None where it must be fetched."""

    def stat(self, key: str) -> Entry | None: ...

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All below `prefix`, a whole path part such as `blobs` or empty, in no certain order."""

    def delete(self, keys: Sequence[str]) -> None:
        """What is not there is deleted already."""

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        """Removes what uploads that were cut off have left behind, if it was last changed before that time. Returns names."""


def read_bytes(store: Store, key: str, size_bytes_max: int) -> bytes:
    """Raises StoreError, also where it is larger than that."""
    data = bytearray()
    for chunk in store.stream(key):
        data += chunk
        if len(data) > size_bytes_max:
            raise StoreError(f"{store.url}/{key} is larger than {size_bytes_max} bytes, so it is not what it should be.")
    return bytes(data)
