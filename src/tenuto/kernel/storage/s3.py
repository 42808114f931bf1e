"""A store in S3, or in a server that speaks its protocol, through MinIO's client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import MinioException, S3Error

from tenuto.kernel.storage.store import (
    BUFFER_BYTES_MAX,
    CONNECT_SECONDS_MAX,
    PARALLEL_MAX,
    PART_BYTES,
    PARTS_MAX,
    READ_BYTES,
    READ_SECONDS_MAX,
    Entry,
    NotStored,
    StoreError,
)

RETRIES_MAX = 3
"""Retries of one request, within a second or two. A longer outage is for the caller to judge."""
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "ResourceNotFound", "InvalidRange"})
_FAILURES = (MinioException, urllib3.exceptions.HTTPError, OSError, ValueError)


class S3Store:
    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint: str,
        secure: bool,
        region: str | None,
        access_key: str | None,
        secret_key: str | None,
        session_token: str | None = None,
    ) -> None:
        """`endpoint` is `host[:port]`. Makes no request."""
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS_MAX, read=READ_SECONDS_MAX),
            maxsize=PARALLEL_MAX + BUFFER_BYTES_MAX // PART_BYTES,
            retries=urllib3.Retry(total=RETRIES_MAX, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
        )
        self._client = Minio(
            endpoint,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            secure=secure,
            region=region or ("us-east-1" if "amazonaws.com" not in endpoint else None),
            http_client=self._pool,
        )

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def packs_small_files(self) -> bool:
        return True

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        with self._explaining(key), source.open("rb") as file:
            size_bytes = source.stat().st_size
            self._client.put_object(
                self._bucket,
                self._name(key),
                file,
                size_bytes,
                part_size=max(PART_BYTES, -(-size_bytes // PARTS_MAX)),
                num_parallel_uploads=BUFFER_BYTES_MAX // PART_BYTES,
            )

    def put_bytes(self, key: str, data: bytes) -> None:
        with self._explaining(key):
            self._client.put_object(self._bucket, self._name(key), BytesIO(data), len(data), part_size=PART_BYTES)

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        with self._explaining(key):
            response: Any = self._client.get_object(self._bucket, self._name(key), offset=offset, length=size_bytes or 0)
            try:
                yield from response.stream(READ_BYTES)
            finally:
                response.close()
                response.release_conn()

    def local_path(self, key: str) -> Path | None:
        return None

    def stat(self, key: str) -> Entry | None:
        try:
            with self._explaining(key):
                found = self._client.stat_object(self._bucket, self._name(key))
        except NotStored:
            return None
        return Entry(key, found.size or 0, _us(found.last_modified))

    def entries(self, prefix: str) -> Iterator[Entry]:
        start = self._name(prefix) + "/" if prefix else (f"{self._prefix}/" if self._prefix else "")
        with self._explaining(prefix):
            for item in self._client.list_objects(self._bucket, start, recursive=True):
                name = item.object_name or ""
                if not name.endswith("/"):
                    key = name[len(self._prefix) + 1 :] if self._prefix else name
                    yield Entry(key, item.size or 0, _us(item.last_modified))

    def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        with self._explaining(keys[0]):
            failed = list(self._client.remove_objects(self._bucket, [DeleteObject(self._name(key)) for key in keys]))
        refused = [error for error in failed if error.code not in _MISSING]
        if refused:
            raise StoreError(f"{self.url}/{refused[0].name}: it could not be deleted: {refused[0].message}.")

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        """Multipart uploads that were never completed: they cost space, but no listing shows them."""
        found: list[str] = []
        start = f"{self._prefix}/" if self._prefix else ""
        with self._explaining(start):
            # The client implements these two requests, but has no public name for them.
            listed = self._client._list_multipart_uploads(self._bucket, prefix=start)
            for upload in listed.uploads:
                if upload.object_name.startswith(start) and _us(upload.initiated_time) < older_than_us:
                    found.append(upload.object_name[len(start) :])
                    if not dry_run:
                        self._client._abort_multipart_upload(self._bucket, upload.object_name, upload.upload_id or "")
        return sorted(found)

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    @contextlib.contextmanager
    def _explaining(self, key: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except S3Error as error:
            kind = NotStored if error.code in _MISSING else StoreError
            raise kind(f"{self.url}/{key}: {error.code}: {(error.message or '').rstrip('.')}") from error
        except _FAILURES as error:
            cause = getattr(error, "reason", None) or error
            raise StoreError(f"{self.url}/{key}: {str(cause).rstrip('.') or type(cause).__name__}") from error


def _us(time: datetime | None) -> int:
    return int(time.astimezone(UTC).timestamp() * 1e6) if time is not None else 0
