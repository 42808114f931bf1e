"""One trial's checkpoints in a store.

Under the trial's prefix there are `blobs/<name>.<checkpoint id>` (contents: a file, or a pack of small ones) and
`manifests/<checkpoint id>.json`. Saving is a two-phase commit: blobs first, then the manifest; then the checkpoint is reported,
and only recorded checkpoints count. A process that dies in between leaves blobs, or a manifest, that the record does not know:
the sweep removes them.

An unchanged file is stored once: a checkpoint names the blobs of the trial's previous checkpoint (its base) for files with equal
contents, and of no other one. The record always keeps a trial's latest checkpoint, so its blobs cannot be deleted while the next
one is under way, whatever the deleter knows of that. So workers that write and the tracker that deletes need no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from tenuto.kernel.storage.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFESTS,
    Manifest,
    StoredFile,
    manifest_key,
    writer_of,
)
from tenuto.kernel.storage.parallel import each
from tenuto.kernel.storage.reading import Damaged, Run, by_place, read_files, read_run, runs
from tenuto.kernel.storage.staging import Staged
from tenuto.kernel.storage.store import NotStored, Store, StoreError, read_bytes
from tenuto.schemas.events.trial import CheckpointFile

__all__ = ["Damaged", "Staged"]

READ_COST_BYTES = 1 << 20
"""Memory that one stream takes."""


def save(store: Store, staged: Staged) -> Manifest:
    """Stores blobs, then the manifest. Returns when every byte is durable; the staged files may be gone then. Raises
    StoreError, or OSError if the staged files cannot be read."""
    manifest = save_blobs(store, staged)
    store.put_bytes(manifest_key(manifest.checkpoint_id), manifest.to_json() + b"\n")
    return manifest


def save_blobs(store: Store, staged: Staged) -> Manifest:
    """First phase of `save`: stores the blobs. The returned manifest is not stored yet. Raises as `save` does."""
    uploads = staged.plan(store.packs_small_files)
    _raise_first(each(lambda upload: staged.store(upload, store), uploads, lambda upload: upload.size_bytes))
    return staged.manifest()


def read_manifest(store: Store, checkpoint_id: str) -> Manifest:
    """Manifest of a checkpoint. Raises Damaged if it is missing or cannot be read, StoreError if the store cannot be used."""
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
    """Raises Damaged if the manifest does not name exactly the recorded files with the recorded contents."""
    theirs = {file.path: file for file in recorded}
    ours = {file.path: file.recorded for file in manifest.files}
    for path in sorted(theirs.keys() | ours.keys()):
        if theirs.get(path) != ours.get(path):
            raise Damaged(f"its manifest differs from the record in {path}")


def read(store: Store, files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, Iterator[bytes]]]:
    """Contents of the files in the given order, verified while they are read: read each to its end before the next. The
    contents raise Damaged, at the latest at their end. Raises StoreError."""
    return read_files(store, files)


def load(store: Store, manifest: Manifest, target: Path) -> None:
    """Puts the verified files into the directory `target`; as links if the store is in this file system (read-only then).
    Raises Damaged or StoreError."""

    def fetch(run: Run) -> None:
        for file, chunks in read_run(store, run):
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            local = store.local_path(file.blob) if file.offset is None else None
            if local is not None:
                # A link costs no copy, but its content is verified all the same.
                for _ in chunks:
                    pass
                path.unlink(missing_ok=True)  # an earlier attempt, before the store failed at another file
                path.symlink_to(local)
                continue
            with path.open("wb") as out:
                for chunk in chunks:
                    out.write(chunk)

    target.mkdir(parents=True, exist_ok=True)
    _raise_first(each(fetch, runs(by_place(manifest.files)), lambda run: READ_COST_BYTES))


def verify(store: Store, manifest: Manifest) -> list[str]:
    """Problems of a checkpoint, one sentence per damaged file. Raises StoreError."""
    problems: list[str] = []

    def check(run: Run) -> None:
        for _, chunks in read_run(store, run):
            try:
                for _ in chunks:
                    pass
            except Damaged as error:
                problems.append(str(error))

    _raise_first(each(check, runs(by_place(manifest.files)), lambda run: READ_COST_BYTES))
    return sorted(problems)


def delete(store: Store, checkpoint_id: str) -> None:
    """Deletes a checkpoint's manifest, and the blobs that no other manifest of the trial names. Blobs go first, so that an
    interrupted deletion can be repeated from the manifest. Raises StoreError."""
    try:
        manifest = read_manifest(store, checkpoint_id)
    except Damaged:
        # Without a manifest, only the blobs' names tell which ones the checkpoint wrote.
        store.delete([manifest_key(checkpoint_id)])
        manifest = None
    used = set()
    for other in list_manifests(store):
        if other != checkpoint_id:
            try:
                used |= {file.blob for file in read_manifest(store, other).files}
            except Damaged as error:
                if store.stat(manifest_key(other)) is None:
                    continue  # deleted in the meantime
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
    """Ids of the checkpoints with a manifest, sorted."""
    return sorted(writer_of(entry.key) for entry in store.entries(MANIFESTS) if entry.key.endswith(".json"))


def _raise_first(errors: list[BaseException]) -> None:
    if errors:
        raise next((error for error in errors if isinstance(error, Damaged)), errors[0])
