"""Restores a trial: the latest checkpoint, verified; where that is damaged, the one before it.

That a checkpoint was passed over is a line in the trial's log, not an event: it decides nothing. The next checkpoint is recorded
as usual and becomes the latest, and the damaged one stays on record for `tenuto ckpt verify`, because the damage may be that of
one node's disk or memory, and not of the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.opening import is_manifest, open_location
from tenuto.kernel.storage.store import StoreError
from tenuto.schemas.assignments import Assignment, SourceCheckpoint
from tenuto.schemas.events.trial import files_hash
from tenuto.workers.checkpoints.place import Place, Say
from tenuto.workers.harness.checkpoint_files import CheckpointDamaged, directory_of
from tenuto.workers.harness.errors import UserError

RESTORE_TRIES_MAX = 10
RESTORE_PAUSE_SECONDS_MAX = 30.0
"""A store that is away for some minutes costs no restart of the trial."""


@dataclass(frozen=True)
class Restored:
    source: SourceCheckpoint
    directory: Path
    """Its files, verified; to be read only."""
    base: Manifest | None
    """For the next save: unchanged files are not stored again. None: all are."""


@contextmanager
def restore(
    assignment: Assignment, place: Place, say: Say, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Restored | None]:
    """None: the trial has no checkpoint yet. Raises CheckpointDamaged where none can be used, UserError where the store stays
    away."""
    source = assignment.checkpoint
    if source is None:
        yield None
        return
    problems: list[str] = []
    with place.scratch() as scratch:
        for candidate in (source, *assignment.earlier_checkpoints):
            try:
                restored = _patiently(lambda candidate=candidate: _fetch(place, candidate, scratch), say, sleep)  # type: ignore[misc]
            except Damaged as error:
                problems.append(f"checkpoint {candidate.checkpoint_id} cannot be read: {error}")
                say(f"{problems[-1]}; trying the one before it")
                continue
            if problems:
                # What the record may delete while it is built upon is no base.
                restored = Restored(restored.source, restored.directory, None)
                say(f"goes on from checkpoint {candidate.checkpoint_id} at batch {candidate.batches} instead")
            yield restored
            return
    more = "" if len(problems) == 1 else f" Nor can the {len(problems) - 1} before it."
    raise CheckpointDamaged(f"{problems[0]}.{more} Restore it in the store, or start the trial anew.")


def _patiently(fetch: Callable[[], Restored], say: Say, sleep: Callable[[float], None]) -> Restored:
    for attempt in range(1, RESTORE_TRIES_MAX + 1):
        try:
            return fetch()
        except StoreError as error:
            if attempt == RESTORE_TRIES_MAX:
                raise UserError(f"The checkpoint cannot be read from its store: {error}.") from error
            pause = min(2.0 ** (attempt - 1), RESTORE_PAUSE_SECONDS_MAX)
            say(f"the checkpoint cannot be read now: {error}; next try in {pause:.0f} s")
            sleep(pause)
    raise AssertionError("unreachable")


def _fetch(place: Place, source: SourceCheckpoint, scratch: Path) -> Restored:
    """Raises Damaged or StoreError."""
    if not is_manifest(source.location):
        directory = directory_of(source.location)  # a plain directory has no hashes to check
        if not directory.is_dir():
            raise Damaged(f"there is no directory {directory}")
        return Restored(source, directory, None)
    store, checkpoint_id = open_location(source.location, place.storage, place.environment)
    manifest = checkpoints.read_manifest(store, checkpoint_id)
    if source.files_hash and files_hash(manifest.recorded) != source.files_hash:
        raise Damaged("its manifest is not what was recorded")
    directory = scratch / source.checkpoint_id
    checkpoints.load(store, manifest, directory)
    return Restored(source, directory, manifest if store.url == place.store.url else None)
