"""One checkpoint from the files of all ranks. Each rank stores its own, from its own node; then rank 0 writes the single
manifest.

Two meetings of all ranks make it complete or not at all: at the first, each rank names the list of its files in the store; at the
second, rank 0 says whether the manifest is stored. Only then may a rank name these blobs in its next checkpoint. The lists are
exchanged through the store, because they may be long; they are removed once the manifest is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from typing import Any

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.manifest import MANIFEST_BYTES_MAX, Manifest, blob_key, manifest_key
from tenuto.kernel.storage.staging import Staged
from tenuto.kernel.storage.store import Store, StoreError, read_bytes
from tenuto.workers.checkpoints.writer import PartMissing
from tenuto.workers.errors import UserError
from tenuto.workers.launch.gang import Gang

PATHS_NAMED_MAX = 3


class ShardedSave:
    """This rank's part in one checkpoint. `keep` may be called again after a StoreError; `close` must be called at the end."""

    def __init__(self, gang: Gang, number: int) -> None:
        """`number`: number of this checkpoint among those of all ranks in this allocation, the same on each."""
        self._gang, self._number = gang, number
        self._parts: list[Any] | None = None
        self._done: bool | None = None

    def keep(self, store: Store, staged: Staged) -> Manifest:
        """Returns when the checkpoint is stored: on rank 0 its manifest, on others their part of it. Raises StoreError,
        OSError; PartMissing if another rank could not store its files; UserError if two ranks have the same file."""
        own = checkpoints.save_blobs(store, staged)
        text = own.to_json()
        key = blob_key(hashlib.sha256(text).hexdigest(), staged.checkpoint_id)
        if self._parts is None:
            store.put_bytes(key, text)
        parts = self._meet(key)
        missing = [rank for rank, part in enumerate(parts) if part is None]
        if missing:
            ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))}"
            raise PartMissing(f"{ranks} could not store the files of this checkpoint" if self._gang.leads else "")
        if not self._gang.leads:
            if not self._finish(False):
                raise PartMissing("")
            return own
        try:
            manifest = merged([Manifest.from_json(read_bytes(store, part, MANIFEST_BYTES_MAX)) for part in parts])
        except (ValueError, UserError):
            self._finish(False)
            raise
        store.put_bytes(manifest_key(manifest.checkpoint_id), manifest.to_json() + b"\n")
        self._finish(True)
        with contextlib.suppress(StoreError):  # the sweep finds what stays
            store.delete(sorted(set(parts)))
        return manifest

    def _meet(self, part: str | None) -> list[Any]:
        if self._parts is None:
            self._parts = self._gang.meet(f"shards/{self._number}", part)
        return self._parts

    def _finish(self, done: bool) -> bool:
        """Exchanges rank 0's result."""
        if self._done is None:
            self._done = bool(self._gang.meet(f"shards/{self._number}/done", done)[0])
        return self._done

    def close(self) -> None:
        """Ends this rank's part: the others need not wait for it any longer."""
        self._meet(None)
        self._finish(False)

    def abandon(self) -> None:
        """Like `close`, without waiting for the others."""
        threading.Thread(target=self.close, name="tenuto-shards", daemon=True).start()


def merged(parts: list[Manifest]) -> Manifest:
    """One manifest from those of all ranks, in rank order. Raises UserError if two ranks have a file of one name with
    different contents; with the same contents it is one file."""
    files = {file.path: file for file in parts[0].files}
    owner = dict.fromkeys(files, 0)
    clashes: dict[str, tuple[int, int]] = {}
    for rank, part in enumerate(parts[1:], start=1):
        for file in part.files:
            if file.path not in files:
                files[file.path], owner[file.path] = file, rank
            elif files[file.path].recorded != file.recorded:
                clashes.setdefault(file.path, (owner[file.path], rank))
    if clashes:
        names = ", ".join(f"{path} (ranks {one} and {other})" for path, (one, other) in sorted(clashes.items())[:PATHS_NAMED_MAX])
        raise UserError(
            f"run.checkpoint.save(shard=True): several ranks have saved a file of the same name with other contents: {names}. "
            "Put run.rank into the names."
        )
    packs = {pack.blob: pack for part in parts for pack in part.packs}
    used = {file.blob for file in files.values()}
    places = {path: place for place, path in enumerate(sorted(files))}
    return Manifest(
        checkpoint_id=parts[0].checkpoint_id,
        files=tuple(files[path] for path in sorted(files)),
        packs=tuple(packs[blob] for blob in sorted(packs) if blob in used),
        owners=tuple(tuple(places[file.path] for file in part.files) for part in parts),
    )
