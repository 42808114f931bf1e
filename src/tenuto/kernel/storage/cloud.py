"""A store in Google Cloud Storage or Azure Blob Storage, through obstore (any of its back ends works)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, NotFoundError

from tenuto.kernel.storage.store import BUFFER_BYTES_MAX, PART_BYTES, PARTS_MAX, READ_BYTES, Entry, NotStored, StoreError


class CloudStore:
    def __init__(self, store: Any, url: str) -> None:
        """`store` is one of obstore's, rooted at the prefix that `url` names."""
        self._store, self._url = store, url.rstrip("/")

    @property
    def url(self) -> str:
        return self._url

    @property
    def packs_small_files(self) -> bool:
        return True

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        with self._explaining(key):
            size_bytes = source.stat().st_size
            obstore.put(
                self._store,
                key,
                source,
                chunk_size=max(PART_BYTES, -(-size_bytes // PARTS_MAX)),
                max_concurrency=BUFFER_BYTES_MAX // PART_BYTES,
                use_multipart=size_bytes > PART_BYTES,
            )

    def put_bytes(self, key: str, data: bytes) -> None:
        with self._explaining(key):
            obstore.put(self._store, key, data, use_multipart=False)

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        wanted: Any = (offset, offset + size_bytes) if size_bytes is not None else {"offset": offset} if offset else None
        with self._explaining(key):
            try:
                found = obstore.get(self._store, key, options={"range": wanted} if wanted else None)
            except BaseError:
                if wanted and obstore.head(self._store, key)["size"] <= offset:
                    raise FileNotFoundError from None  # the object is shorter
                raise
            for chunk in found.stream(min_chunk_size=READ_BYTES):
                yield bytes(chunk)

    def local_path(self, key: str) -> Path | None:
        return None

    def stat(self, key: str) -> Entry | None:
        try:
            with self._explaining(key):
                return _entry(obstore.head(self._store, key), key)
        except NotStored:
            return None

    def entries(self, prefix: str) -> Iterator[Entry]:
        with self._explaining(prefix):
            for page in obstore.list(self._store, prefix or None):
                for item in page:
                    yield _entry(item, item["path"])

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with contextlib.suppress(NotStored), self._explaining(key):
                obstore.delete(self._store, key)

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        """Nothing to do: Google and Azure drop uncommitted blocks by themselves after a week."""
        return []

    @contextlib.contextmanager
    def _explaining(self, key: str) -> Iterator[None]:
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise NotStored(f"{self._url}/{key}: there is no such object") from error
        except StoreError:
            raise
        except (BaseError, OSError, ValueError) as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise StoreError(f"{self._url}/{key}: {first.rstrip('.')}") from error


def _entry(item: Any, key: str) -> Entry:
    modified: datetime = item["last_modified"]
    return Entry(key, item["size"], int(modified.timestamp() * 1e6))
