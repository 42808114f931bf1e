"""A checkpoint's files on their way into a store: those that are stored already, and the blobs that the others go to.

- A file that the trial's previous checkpoint (the base) has, with the same contents, is named and not stored again.
- Files of at most SMALL_BYTES_MAX are put together into packs of at most PACK_BYTES_MAX, if the store says that requests are
expensive: a thousand small files are then a handful of requests.
- Files of at most one part are hashed, then stored under their hash.
- Larger files are hashed while they are sent. They are hashed first only if one with the same ends is stored already.

A pack lives as long as a checkpoint names it. So that a few kept files do not keep a whole pack for ever, a checkpoint names an
older pack only if it uses at least PACK_USED_MIN of it; otherwise it stores those files again.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tenuto.kernel.storage.manifest import Manifest, Pack, StoredFile, blob_key, ends_of, sha256_of
from tenuto.kernel.storage.store import PART_BYTES, Store

SMALL_BYTES_MAX = 1 << 20
"""Largest file in a pack: sending this much takes longer than a request's round trip, so larger files gain nothing from one."""
PACK_BYTES_MAX = 4 << 20
"""Largest pack. It is one request, held in memory while it is sent; the bound of memory lets PARALLEL_MAX packs go at once."""
PACK_USED_MIN = 0.5
"""Smallest used part of an older pack that is named again. The store then holds at most twice the size of the checkpoints'
small files."""
HASHING_THREADS = max(1, min(4, (os.cpu_count() or 1)))


@dataclass(frozen=True)
class File:
    path: str
    size_bytes: int
    sha256: str = ""
    """SHA-256 of the content. Empty: computed while the file is sent."""
    ends_sha256: str = ""


@dataclass(frozen=True)
class BlobUpload:
    """One blob to store."""

    blob: str
    files: tuple[File, ...]
    """Files in the blob; several form a pack in this order."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass
class Staged:
    """A checkpoint to save. `checkpoints.save` may be called again after a StoreError: blobs that are stored already are not
    sent again."""

    checkpoint_id: str
    directory: Path
    base: Manifest | None
    uploads: tuple[BlobUpload, ...] | None = None
    """Blobs to store. None: not planned yet."""
    named: dict[str, StoredFile] = field(default_factory=dict)
    """Files, by path, whose contents the base has."""
    twins: dict[str, str] = field(default_factory=dict)
    """Path -> another path of this checkpoint with the same contents, which is stored."""
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256, by path, of files that were hashed while they were sent."""
    done: set[str] = field(default_factory=set)
    """Blobs of `uploads` that are stored."""

    def plan(self, packs: bool) -> tuple[BlobUpload, ...]:
        """Finds out which files are new, reading only what it must. `packs`: put small files together. Raises OSError."""
        if self.uploads is None:
            new = self._without_known(self._files())
            small = [file for file in new if packs and file.size_bytes <= SMALL_BYTES_MAX]
            gathered = _gathered(small, self.checkpoint_id)
            packed = {file.path for upload in gathered for file in upload.files}
            token = uuid4().hex
            alone = (
                BlobUpload(blob_key(file.sha256 or f"{token}-{index}", self.checkpoint_id), (file,))
                for index, file in enumerate(new)
                if file.path not in packed
            )
            # Largest first, so that small ones fill the gaps at the end.
            self.uploads = tuple(sorted([*gathered, *alone], key=lambda upload: -upload.size_bytes))
        return self.uploads

    def _files(self) -> list[File]:
        """Files by path, hashed if the hash must be known before the upload."""
        paths = sorted(path for path in self.directory.rglob("*") if path.is_file())
        names = [path.relative_to(self.directory).as_posix() for path in paths]
        sizes = [path.stat().st_size for path in paths]
        ends = [ends_of(path, size) if size > PART_BYTES else "" for path, size in zip(paths, sizes, strict=True)]
        alike = Counter(zip(sizes, ends, strict=True))
        alike.update((file.size_bytes, file.ends_sha256) for file in (self.base.files if self.base else ()))
        # A file of an earlier format has no hash of its ends: it may equal any file of its size.
        sizes_unsure = {file.size_bytes for file in (self.base.files if self.base else ()) if not file.ends_sha256}

        def hash_of(index: int) -> str:
            size, end = sizes[index], ends[index]
            return sha256_of(paths[index]) if not end or alike[size, end] > 1 or size in sizes_unsure else ""

        # Small files are hashed in this thread: handing each to another one takes longer than hashing it.
        large = [index for index, size in enumerate(sizes) if size > SMALL_BYTES_MAX]
        with ThreadPoolExecutor(HASHING_THREADS) as threads:
            hashes = dict(zip(large, threads.map(hash_of, large), strict=True))
        hashes |= {index: hash_of(index) for index, size in enumerate(sizes) if size <= SMALL_BYTES_MAX}
        return [File(name, sizes[index], hashes[index], ends[index]) for index, name in enumerate(names)]

    def _without_known(self, files: list[File]) -> list[File]:
        known = self._worth_naming(files)
        first: dict[str, str] = {}
        new = []
        for file in files:
            stored = known.get(file.sha256)
            if stored is not None:
                self.named[file.path] = stored.model_copy(update={"path": file.path, "ends_sha256": file.ends_sha256})
            elif file.sha256 in first:
                self.twins[file.path] = first[file.sha256]
            else:
                if file.sha256:
                    first[file.sha256] = file.path
                new.append(file)
        return new

    def _worth_naming(self, files: list[File]) -> dict[str, StoredFile]:
        """Files of the base by SHA-256, without packs that would be kept for too little."""
        if self.base is None:
            return {}
        known = {file.sha256: file for file in self.base.files}
        used: Counter[str] = Counter()
        for sha256 in {file.sha256 for file in files} & known.keys():
            used[known[sha256].blob] += known[sha256].size_bytes
        sparse = {pack.blob for pack in self.base.packs if used[pack.blob] < PACK_USED_MIN * pack.size_bytes}
        return {sha256: file for sha256, file in known.items() if file.blob not in sparse}

    def manifest(self) -> Manifest:
        """Manifest of the checkpoint, once all uploads are done."""
        assert self.uploads is not None
        found, packs = dict(self.named), {}
        older = {pack.blob: pack for pack in self.base.packs} if self.base else {}
        for stored in self.named.values():
            if stored.offset is not None:
                packs[stored.blob] = older[stored.blob]
        for upload in self.uploads:
            packed, offset = len(upload.files) > 1, 0
            if packed:
                packs[upload.blob] = Pack(blob=upload.blob, size_bytes=upload.size_bytes)
            for file in upload.files:
                found[file.path] = StoredFile(
                    path=file.path,
                    size_bytes=file.size_bytes,
                    sha256=file.sha256 or self.hashes[file.path],
                    blob=upload.blob,
                    offset=offset if packed else None,
                    ends_sha256=file.ends_sha256,
                )
                offset += file.size_bytes
        for path, twin in self.twins.items():
            found[path] = found[twin].model_copy(update={"path": path})
        return Manifest(
            checkpoint_id=self.checkpoint_id,
            files=tuple(found[path] for path in sorted(found)),
            packs=tuple(packs[blob] for blob in sorted(packs)),
        )

    def store(self, upload: BlobUpload, store: Store) -> None:
        """Stores one blob. Raises StoreError, or OSError if the staged files cannot be read."""
        if upload.blob in self.done:
            return
        file = upload.files[0]
        if len(upload.files) > 1:
            store.put_bytes(upload.blob, b"".join((self.directory / file.path).read_bytes() for file in upload.files))
        elif file.sha256 or file.path in self.hashes:
            store.put_file(upload.blob, self.directory / file.path, consume=True)
        else:
            self._store_and_hash(upload.blob, file, store)
        self.done.add(upload.blob)

    def _store_and_hash(self, blob: str, file: File, store: Store) -> None:
        path = self.directory / file.path
        # Opened first: the store may move the file.
        with path.open("rb", buffering=0) as source, ThreadPoolExecutor(1, thread_name_prefix="tenuto-hash") as thread:
            digest = thread.submit(hashlib.file_digest, source, "sha256")
            try:
                store.put_file(blob, path, consume=True)
            finally:
                self.hashes[file.path] = digest.result().hexdigest()


def _gathered(files: list[File], checkpoint_id: str) -> list[BlobUpload]:
    """Packs, filled in the given order. A pack of one file is left out."""
    packs: list[list[File]] = []
    filled = PACK_BYTES_MAX
    for file in files:
        if filled + file.size_bytes > PACK_BYTES_MAX:
            packs.append([])
            filled = 0
        packs[-1].append(file)
        filled += file.size_bytes
    return [BlobUpload(blob_key(_pack_name(pack), checkpoint_id), tuple(pack)) for pack in packs if len(pack) > 1]


def _pack_name(files: list[File]) -> str:
    return hashlib.sha256("".join(f"{file.size_bytes}:{file.sha256}\n" for file in files).encode()).hexdigest()
