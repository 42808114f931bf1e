"""The way in which a checkpoint is saved: from a copy in memory beside training, while training waits, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from tenuto.schemas.config.storage import CheckpointStorage
from tenuto.workers.checkpoints.host_memory import has_room
from tenuto.workers.checkpoints.writer import CheckpointWriter

Way = Literal["copy", "wait", "skip"]


class CopiedState(Protocol):
    """State that is to be saved: a trainer's, or a script's."""

    @property
    def batches(self) -> int: ...
    @property
    def has_snapshots(self) -> bool: ...
    def snapshot_bytes(self) -> int: ...


class BackgroundSaves:
    def __init__(
        self, storage: CheckpointStorage, say: Callable[[str], None], has_room: Callable[[int], bool] = has_room
    ) -> None:
        self._storage, self._say, self._has_room = storage, say, has_room
        self._told = False
        self.skipped = 0
        """Checkpoints left out so far."""

    def way(self, state: CopiedState, writer: CheckpointWriter, optional: bool) -> Way:
        """Way of the next checkpoint. `optional`: nothing hangs on it, so it may be left out. Raises errors of the checkpoints
        before it."""
        if not self._storage.async_save or not state.has_snapshots:
            return "wait"
        skips = optional and self._storage.when_busy == "skip"
        if skips and writer.full:
            return self._skip(state.batches)
        if self._fits(state):
            return "copy"
        if writer.under_way:
            if skips:
                return self._skip(state.batches)
            writer.wait()  # its memory is used again
            if self._fits(state):
                return "copy"
        if not self._told:
            self._told = True
            self._say(
                f"training waits while checkpoints are stored: there is no memory for a copy of the state "
                f"({state.snapshot_bytes() >> 20} MiB); give the trial more memory, or save less often"
            )
        return "wait"

    def tell_skipped(self) -> None:
        """Says how many were left out, once; called when the trial leaves."""
        count, self.skipped = self.skipped, 0
        if count:
            self._say(f"{count} checkpoints were left out, because the store was still taking those before them")

    def _fits(self, state: CopiedState) -> bool:
        needed = state.snapshot_bytes()
        return needed == 0 or self._has_room(needed)

    def _skip(self, batches: int) -> Way:
        self.skipped += 1
        if self.skipped == 1:
            self._say(
                f"the checkpoint at batch {batches} is left out: the store is still taking those before it "
                "(checkpoint_storage.when_busy: skip); the number of those left out after it is said at the end"
            )
        return "skip"
