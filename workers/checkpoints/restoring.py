"""Restores a trial: from its latest checkpoint, verified; if that is damaged, from the one before it; if none is left, the trial
begins again from its seed.

Each damaged checkpoint is reported, and so recorded, with the checkpoint that is used instead. It is not deleted: the damage may
be that of one node's disk or memory, and not of the store. The next start tries it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Damaged
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.store import StoreError
from tenuto.schemas.assignments import EARLIER_CHECKPOINTS_MAX, Assignment, SourceCheckpoint
from tenuto.schemas.events.trial import files_hash
from tenuto.schemas.reports import DamageReport
from tenuto.workers.checkpoints.files import UnusableCheckpoint
from tenuto.workers.checkpoints.location import Place, Say
from tenuto.workers.errors import UserError
from tenuto.workers.launch.gang import Gang

RESTORE_TRIES_MAX = 10
RESTORE_PAUSE_SECONDS_MAX = 30.0
"""Longest pause between attempts; a store that is unreachable for some minutes costs no restart of the trial."""

T = TypeVar("T")


@dataclass(frozen=True)
class Restored:
    source: SourceCheckpoint
    directory: Path
    """Directory of the checkpoint's verified files; read-only."""
    base: Manifest | None
    """Base of the next save: unchanged files are not stored again. None: all files are stored."""
    complete: Callable[[], None] | None = None
    """Function that fetches the files of the other ranks, too. Raises UserError if that is not possible. None: they are all
    here."""


Report = Callable[[DamageReport], None]


@contextmanager
def restore(
    assignment: Assignment,
    place: Place,
    say: Say,
    report: Report,
    sleep: Callable[[float], None] = time.sleep,
    gang: Gang | None = None,
    alike: bool = True,
    anew: bool = True,
) -> Iterator[Restored | None]:
    """The restored checkpoint. None: the trial has no checkpoint yet, or all of its own are damaged and it begins again from its
    seed, with the same result. Raises UnusableCheckpoint if the result would differ, or if the store seems to be the wrong one;
    UserError if the store stays unreachable. `report` gets each damaged checkpoint once it is known what is used instead.

    `gang`: this is a rank, which fetches only its own files of a checkpoint saved by as many ranks. `alike`: every rank restores,
    and such a checkpoint is used only if none of them finds damage. `anew`: the trial may begin again.
    """
    source = assignment.checkpoint
    if source is None:
        yield None
        return
    problems: list[str] = []
    damaged: list[tuple[str, str]] = []

    def report_all(resumed_from: str | None) -> None:
        for checkpoint_id, reason in damaged:
            report(
                DamageReport(
                    trial_id=assignment.trial_id,
                    allocation_id=assignment.allocation_id,
                    checkpoint_id=checkpoint_id,
                    reason=reason,
                    resumed_from=resumed_from,
                )
            )

    with place.scratch() as scratch:
        candidates = (source, *assignment.earlier_checkpoints)
        for candidate in candidates:
            try:
                restored = _fetch_alike(place, candidate, scratch, gang, say, sleep, alike=alike)
            except Damaged as error:
                damaged.append((candidate.checkpoint_id, str(error)))
                problems.append(f"checkpoint {candidate.checkpoint_id} cannot be read: {error}")
                more = "; trying the one before it" if candidate is not candidates[-1] else ""
                say(f"{problems[-1]}{more}")
                continue
            if problems:
                # A checkpoint that may be deleted while the next save builds upon it cannot be its base.
                restored = replace(restored, base=None)
                # Reported only now, when it is known which checkpoint replaces the damaged ones.
                report_all(candidate.checkpoint_id)
                say(f"goes on from checkpoint {candidate.checkpoint_id} at batch {candidate.batches} instead")
            yield restored
            return
    report_all(None)
    obstacle = _no_new_beginning(assignment, place) if anew else ""
    if obstacle is None:
        say("none of the trial's checkpoints can be read: it begins again from its seed, which ends with the same result")
        yield None
        return
    more = "" if len(problems) == 1 else f" Nor can the {len(problems) - 1} before it."
    more += f" {obstacle}" if obstacle else ""
    raise UnusableCheckpoint(f"{problems[0]}.{more} Restore it in the store, or start a new experiment.")


def _no_new_beginning(assignment: Assignment, place: Place) -> str | None:
    """Reason why a trial without a readable checkpoint must not begin again from its seed; None if it may."""
    searcher, candidates = assignment.config.searcher, (assignment.checkpoint, *assignment.earlier_checkpoints)
    foreign = [item for item in candidates if item and not item.checkpoint_id.startswith(f"{assignment.trial_id}-")]
    if foreign or searcher.source_checkpoint is not None or searcher.DERIVES:
        return "The trial was begun from the weights of another one, so beginning again from its seed would be another training."
    if len(candidates) > EARLIER_CHECKPOINTS_MAX:
        return f"{len(candidates)} checkpoints in a row are damaged, so the store itself may be: check it."
    try:
        empty = not any(True for _ in place.store.entries(""))
    except StoreError as error:
        return f"Its store cannot be listed: {error}."
    if empty:
        return f"{place.store.url} is empty: check that it is mounted on this node, and that it is the right one."
    return None


def _fetch_alike(
    place: Place,
    source: SourceCheckpoint,
    scratch: Path,
    gang: Gang | None,
    say: Say,
    sleep: Callable[[float], None],
    *,
    alike: bool,
) -> Restored:
    """Fetches a checkpoint on all ranks. Raises Damaged, also if another rank found it damaged; UserError."""
    tag = f"restored/{source.checkpoint_id}"
    try:
        restored = _patiently(lambda: _fetch(place, source, scratch, gang, say), say, sleep)
    except Damaged as error:
        if gang is not None and alike:
            gang.say(tag, str(error))
        raise
    if gang is not None and alike and restored.complete is not None:
        for rank, reason in enumerate(gang.meet(tag, None)):
            if reason is not None:
                raise Damaged(f"rank {rank} found: {reason}")
    return restored


def _patiently(fetch: Callable[[], T], say: Say, sleep: Callable[[float], None]) -> T:
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


def _fetch(place: Place, source: SourceCheckpoint, scratch: Path, gang: Gang | None, say: Say) -> Restored:
    """Fetches and verifies one checkpoint. Raises Damaged or StoreError."""
    store, checkpoint_id = place.open_location(source.location)
    manifest = checkpoints.read_manifest(store, checkpoint_id)
    if source.files_hash and files_hash(manifest.recorded) != source.files_hash:
        raise Damaged("its manifest is not what was recorded")
    directory = scratch / source.checkpoint_id
    own = None if gang is None else manifest.own_files(gang.rank, gang.world_size)
    checkpoints.load(store, manifest if own is None else manifest.model_copy(update={"files": own}), directory)
    base = manifest if store.url == place.store.url else None
    if own is None:
        return Restored(source, directory, base)
    paths = {file.path for file in own}
    others = tuple(file for file in manifest.files if file.path not in paths)

    def complete() -> None:
        try:
            _patiently(lambda: checkpoints.load(store, manifest.model_copy(update={"files": others}), directory), say, time.sleep)
        except Damaged as error:
            raise UserError(f"checkpoint {source.checkpoint_id} cannot be read: {error}.") from error

    return Restored(source, directory, base, complete)
