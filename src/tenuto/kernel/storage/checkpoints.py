"""One trial's checkpoints in a store.

Under the trial's prefix stand `blobs/<name>.<checkpoint id>` (contents: a file, or a pack of small ones) and
`manifests/<checkpoint id>.json`. Saving is a two-phase commit: blobs first, then the manifest; only then is the checkpoint
reported, and only what is in the record counts. A process that dies on the way leaves blobs, or a manifest, that the record does
not know: the sweep removes them.

An unchanged file is stored once: a checkpoint names the blobs of the trial's checkpoint before it (its base) where contents are
equal. Only of that one: the record always keeps a trial's latest checkpoint, so its blobs cannot be deleted while the next one
is under way, whatever the deleter knows of it. So no lock is needed between workers that write and the tracker that deletes.
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
"""What one stream holds at a time."""


def save(store: Store, staged: Staged) -> Manifest:
    """Stores blobs, then the manifest. Returns when every byte is stored for good; the staged files may be gone then. Raises
    StoreError, or OSError where the staged files cannot be read."""
    manifest = save_blobs(store, staged)
    store.put_bytes(manifest_key(manifest.checkpoint_id), manifest.to_json() + b"\n")
    return manifest


def save_blobs(store: Store, staged: Staged) -> Manifest:
    """The first phase alone: what it returns is not stored yet. Raises as `save` does."""
    uploads = staged.plan(store.packs_small_files)
    _raise_first(each(lambda upload: staged.store(upload, store), uploads, lambda upload: upload.size_bytes))
    return staged.manifest()


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


def read(store: Store, files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, Iterator[bytes]]]:
    """The files' contents in the order given, checked as they pass: read each to its end before the next. The contents raise
    Damaged, at the latest at their end. Raises StoreError."""
    return read_files(store, files)


def load(store: Store, manifest: Manifest, target: Path) -> None:
    """Puts the verified files into the directory `target`; as links where the store is in this file system (read-only then).
    Raises Damaged or StoreError."""

    def fetch(run: Run) -> None:
        for file, chunks in read_run(store, run):
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            local = store.local_path(file.blob) if file.offset is None else None
            if local is not None:
                for _ in chunks:
                    pass
                path.symlink_to(local)
                continue
            with path.open("wb") as out:
                for chunk in chunks:
                    out.write(chunk)

    target.mkdir(parents=True, exist_ok=True)
    _raise_first(each(fetch, runs(by_place(manifest.files)), lambda run: READ_COST_BYTES))


def verify(store: Store, manifest: Manifest) -> list[str]:
    """What is wrong with it, file by file. Raises StoreError."""
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


def _raise_first(errors: list[BaseException]) -> None:
    if errors:
        raise next((error for error in errors if isinstance(error, Damaged)), errors[0])
