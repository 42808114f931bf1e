"""One trial's checkpoints in a store.

Under the trial's prefix stand `blobs/<sha256>.<checkpoint id>` (contents) and `manifests/<checkpoint id>.json`. Saving is a
two-phase commit: blobs first, then the manifest; only then is the checkpoint reported, and only what is in the record counts. A
process that dies on the way leaves blobs, or a manifest, that the record does not know: the sweep removes them.

An unchanged file is stored once: a checkpoint names the blobs of the trial's checkpoint before it (its base) where contents are
equal. Only of that one: the record always keeps a trial's latest checkpoint, so its blobs cannot be deleted while the next one
is under way, whatever the deleter knows of it. So no lock is needed between workers that write and the tracker that deletes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from tenuto.kernel.storage.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFESTS,
    Manifest,
    StoredFile,
    blob_key,
    manifest_key,
    sha256_of,
    writer_of,
)
from tenuto.kernel.storage.store import BUFFER_BYTES_MAX, PARALLEL_MAX, NotStored, Store, StoreError, read_bytes
from tenuto.schemas.events.trial import CheckpointFile


class Damaged(Exception):
    """What the store holds is not what was saved. `str(error)` names the file and says how."""


@dataclass
class Staged:
    """A checkpoint's files on their way into the store. `save` may be called again after a StoreError: what is stored already
    is not sent again."""

    checkpoint_id: str
    directory: Path
    base: Manifest | None
    manifest: Manifest | None = None
    stored: set[str] = field(default_factory=set)

    def describe(self) -> Manifest:
        """Hashes the files. Raises OSError."""
        if self.manifest is None:
            known = {file.sha256: file.blob for file in self.base.files} if self.base else {}
            paths = sorted(path for path in self.directory.rglob("*") if path.is_file())
            with ThreadPoolExecutor(HASHING_THREADS) as threads:
                hashes = list(threads.map(sha256_of, paths))
            files = tuple(
                StoredFile(
                    path=path.relative_to(self.directory).as_posix(),
                    size_bytes=path.stat().st_size,
                    sha256=sha256,
                    blob=known.get(sha256) or blob_key(sha256, self.checkpoint_id),
                )
                for path, sha256 in zip(paths, hashes, strict=True)
            )
            self.manifest = Manifest(checkpoint_id=self.checkpoint_id, files=files)
            self.stored.update(known.values())
        return self.manifest


HASHING_THREADS = max(1, min(4, (os.cpu_count() or 1)))


def save(store: Store, staged: Staged) -> Manifest:
    """Stores blobs, then the manifest. Returns when every byte is stored for good; the staged files may be gone then. Raises
    StoreError, or OSError where the staged files cannot be read."""
    manifest = staged.describe()
    wanted: dict[str, StoredFile] = {}
    for file in manifest.files:
        if file.blob not in staged.stored:
            wanted.setdefault(file.blob, file)

    def put(file: StoredFile) -> None:
        store.put_file(file.blob, staged.directory / file.path, consume=True)
        staged.stored.add(file.blob)

    # The largest first: small ones then fill the gaps.
    _each(put, sorted(wanted.values(), key=lambda file: -file.size_bytes), lambda file: file.size_bytes)
    store.put_bytes(manifest_key(manifest.checkpoint_id), manifest.to_json() + b"\n")
    return manifest


def read_manifest(store: Store, checkpoint_id: str) -> Manifest:
    """Raises Damaged where it is not there or cannot be read, StoreError where the store is away."""
    try:
        manifest = Manifest.from_json(read_bytes(store, manifest_key(checkpoint_id), MANIFEST_BYTES_MAX))
    except NotStored as error:
        raise Damaged(f"its manifest is not there ({error})") from error
    except ValidationError as error:
        raise Damaged("its manifest cannot be read") from error
    if manifest.checkpoint_id != checkpoint_id:
        raise Damaged(f"its manifest is that of checkpoint {manifest.checkpoint_id}")
    return manifest


def check_record(manifest: Manifest, recorded: Iterable[CheckpointFile]) -> None:
    """Raises Damaged where the manifest does not name exactly the recorded files with the recorded contents."""
    theirs = {file.path: file for file in recorded}
    ours = {file.path: file.recorded for file in manifest.files}
    for path in sorted(theirs.keys() | ours.keys()):
        if theirs.get(path) != ours.get(path):
            raise Damaged(f"its manifest differs from the record in {path}")


def check_blob(store: Store, file: StoredFile) -> Iterator[bytes]:
    """The contents, checked as they pass. Raises Damaged, at the latest at the end."""
    digest, size_bytes = hashlib.sha256(), 0
    try:
        for chunk in store.stream(file.blob):
            digest.update(chunk)
            size_bytes += len(chunk)
            yield chunk
    except NotStored as error:
        raise Damaged(f"{file.path} is not there") from error
    if size_bytes != file.size_bytes:
        raise Damaged(f"{file.path} has {size_bytes} bytes where {file.size_bytes} were saved")
    if digest.hexdigest() != file.sha256:
        raise Damaged(f"{file.path} does not have the SHA-256 that was saved")


def load(store: Store, manifest: Manifest, target: Path) -> None:
    """Puts the verified files into the directory `target`; as links where the store is in this file system (read-only then).
    Raises Damaged or StoreError."""

    def fetch(file: StoredFile) -> None:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        local = store.local_path(file.blob)
        if local is not None:
            for _ in check_blob(store, file):
                pass
            path.symlink_to(local)
            return
        with path.open("wb") as out:
            for chunk in check_blob(store, file):
                out.write(chunk)

    target.mkdir(parents=True, exist_ok=True)
    _each(fetch, manifest.files, lambda file: 1 << 20)


def verify(store: Store, manifest: Manifest) -> list[str]:
    """What is wrong with it, file by file. Raises StoreError."""
    problems: list[str] = []

    def check(file: StoredFile) -> None:
        try:
            for _ in check_blob(store, file):
                pass
        except Damaged as error:
            problems.append(str(error))

    _each(check, manifest.files, lambda file: 1 << 20)
    return sorted(problems)


def delete(store: Store, checkpoint_id: str) -> None:
    """Its manifest, and the blobs that no other manifest of the trial names. Blobs go first, so a deletion that was cut off is
    done again from the manifest. Raises StoreError."""
    try:
        manifest = read_manifest(store, checkpoint_id)
    except Damaged:
        # Without a manifest nothing says which blobs were its own but their names.
        store.delete([manifest_key(checkpoint_id)])
        manifest = None
    used = set()
    for other in list_manifests(store):
        if other != checkpoint_id:
            try:
                used |= {file.blob for file in read_manifest(store, other).files}
            except Damaged as error:
                if store.stat(manifest_key(other)) is None:
                    continue  # deleted since
                raise StoreError(
                    f"{store.url}: checkpoint {checkpoint_id} is not deleted, because it may share files with "
                    f"checkpoint {other}, and {error}."
                ) from error
    if manifest is None:
        gone = {entry.key for entry in store.entries("blobs") if writer_of(entry.key) == checkpoint_id} - used
        store.delete(sorted(gone))
        return
    store.delete(sorted({file.blob for file in manifest.files} - used))
    store.delete([manifest_key(checkpoint_id)])


def list_manifests(store: Store) -> list[str]:
    """Checkpoint ids, sorted."""
    return sorted(writer_of(entry.key) for entry in store.entries(MANIFESTS) if entry.key.endswith(".json"))


def _each(work: Callable[[StoredFile], None], files: Sequence[StoredFile], cost_bytes: Callable[[StoredFile], int]) -> None:
    """`work` on each, many at once, with at most BUFFER_BYTES_MAX at work together. The first error stops the rest."""
    if not files:
        return
    budget = _Budget(BUFFER_BYTES_MAX)
    failed = threading.Event()

    def run(file: StoredFile, cost: int) -> None:
        try:
            if not failed.is_set():
                work(file)
        except BaseException:
            failed.set()
            raise
        finally:
            budget.give(cost)

    with ThreadPoolExecutor(min(PARALLEL_MAX, len(files)), thread_name_prefix="tenuto-store") as threads:
        futures = []
        for file in files:
            cost = min(max(cost_bytes(file), 1), BUFFER_BYTES_MAX)
            budget.take(cost)
            if failed.is_set():
                budget.give(cost)
                break
            futures.append(threads.submit(run, file, cost))
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if isinstance(error, Damaged)), errors[0])


class _Budget:
    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()

    def take(self, amount: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._left >= amount)
            self._left -= amount

    def give(self, amount: int) -> None:
        with self._changed:
            self._left += amount
            self._changed.notify_all()
