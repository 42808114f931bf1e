"""The protocol of a store. It holds bytes under keys such as `blobs/ab/abcd.1-1-1-20`; nothing is ever changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

READ_BYTES = 1 << 20
PART_BYTES = 16 << 20
"""Size of one part of a large upload. S3 allows 10,000 parts, so a file may have 156 GiB; larger ones get larger parts."""
PARTS_MAX = 10_000
BUFFER_BYTES_MAX = 64 << 20
"""Most bytes of files that the uploads of one checkpoint hold in memory, whatever its size: four parts, or many small files."""
PARALLEL_MAX = 16
"""Most requests at once: small files wait for round trips, not for bandwidth."""
CONNECT_SECONDS_MAX = 5.0
READ_SECONDS_MAX = 60.0
"""Silence after which a store counts as unreachable."""


class StoreError(OSError):
    """The store failed. `str(error)` is one sentence: which store, what, why. The operation may be tried again."""


class NotStored(StoreError):
    """The key does not exist."""


@dataclass(frozen=True)
class Entry:
    key: str
    size_bytes: int
    modified_us: int
    """Time of the last change by the store's own clock, in microseconds since 1970-01-01 UTC."""


class Store(Protocol):
    """Thread-safe. Every method raises StoreError. Content is complete and durable when a put returns; an interrupted put
    leaves the key as it was."""

    @property
    def url(self) -> str:
        """`file:///...`, `s3://bucket/prefix`, `gs://...` or `az://container/prefix`, without a slash at the end."""

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        """Stores a file. `consume`: the source is not needed any more, so a store in the same file system may move it."""

    def put_bytes(self, key: str, data: bytes) -> None: ...

    @property
    def packs_small_files(self) -> bool:
        """True if a request costs far more than a small file's bytes, so that small files should be stored together."""

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Content from `offset`, at most `size_bytes` (at least 1; None: to the end). Raises NotStored, at the latest for the
        first bytes, also if the content ends before `offset`."""

    def local_path(self, key: str) -> Path | None:
        """Path of the content for a reader on this machine; None if it must be fetched."""

    def stat(self, key: str) -> Entry | None: ...

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All entries below `prefix`, which is a whole path part such as `blobs`, or empty. Their order is undefined."""

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes keys; missing ones count as deleted."""

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        """Removes the remains of interrupted uploads that were last changed before that time. Returns their names."""


def read_bytes(store: Store, key: str, size_bytes_max: int) -> bytes:
    """Whole content of a key. Raises StoreError, also if it is larger than `size_bytes_max`."""
    data = bytearray()
    for chunk in store.stream(key):
        data += chunk
        if len(data) > size_bytes_max:
            raise StoreError(f"{store.url}/{key} is larger than {size_bytes_max} bytes, so it is not what it should be.")
    return bytes(data)
