"""Saves checkpoints in the background: the training thread hands over a copy of its state and goes on.

One checkpoint is stored at a time, and at most one more waits for its turn as a copy in memory; the next save waits until the
first is done. This back-pressure bounds memory to two copies of the state and the disk to one checkpoint's files. A checkpoint is
reported when every byte of it is stored, never before, and in the order in which they were saved.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.storage import checkpoints
from tenuto.kernel.storage.checkpoints import Staged
from tenuto.kernel.storage.manifest import Manifest
from tenuto.kernel.storage.store import Store
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.reports import REPORT_BYTES_MAX, CheckpointReport
from tenuto.workers.checkpoints.exactness import breaks_in
from tenuto.workers.checkpoints.location import Place, Say
from tenuto.workers.checkpoints.write_failures import storage_error
from tenuto.workers.errors import WillRepeat

Fill = Callable[[Path], None]
"""Function that writes the checkpoint's files into an empty directory. Raises OSError if the disk does not accept them."""
Report = Callable[[CheckpointReport], None]
Keep = Callable[[Store, Staged], Manifest]
"""Function that stores the staged files as a checkpoint. Raises OSError, after which it may be called again, or PartMissing."""

TRIES_MAX = 3
"""Most attempts at a boundary, with on_failure: continue. A full disk rarely clears within seconds, and training need not wait
for it."""
LEAVING_TRIES_MAX = 60
"""Most attempts when leaving: work that is not saved now is trained again. The agent's grace period usually ends it first."""
PAUSE_SECONDS_MAX = 10.0
FILES_ALWAYS_REPORTED = 1_000
"""Most files of a report that is small with any names (at most 4 KiB each); reports with more are measured."""
UNDER_WAY_MAX = 2
"""Most checkpoints under way: the one being stored, and the next one. A store that is slow for a moment holds up no training; one
that is always too slow would hold it up with any number."""
WAIT_SAID_SECONDS = 5.0
"""Wait for the store after which the log says that it is too slow."""


class PartMissing(Exception):
    """Another process could not do its part of this checkpoint. The text is for the user; empty: another process reports it."""


@dataclass(frozen=True)
class Position:
    checkpoint_id: str
    """Id of the checkpoint: unique in the trial, and beginning with the allocation's id."""
    batches: int
    length: int
    """The same position in the unit of the experiment's lengths."""


class CheckpointWriter:
    """Writer of one allocation's checkpoints. Every method is for the training thread."""

    def __init__(
        self,
        assignment: Assignment,
        place: Place,
        report: Report,
        say: Say,
        *,
        base: Manifest | None = None,
        sleep: Callable[[float], None] = time.sleep,
        suffix: str = "",
    ) -> None:
        """`report` may be called from another thread. `base`: manifest that the trial was restored from. `suffix`:
        distinguishes this process's files from those of others that save the same checkpoint."""
        self._suffix = suffix
        self._assignment, self._place, self._report, self._say, self._sleep = assignment, place, report, say, sleep
        self._retries = assignment.config.checkpoint_storage.on_failure == "retry"
        self._base = base
        self._under_way: deque[threading.Thread] = deque()
        """Threads that store a checkpoint each, one after the other, oldest first."""
        self._error: BaseException | None = None
        self._stored: list[str] = []
        self._failed_in_background = False
        self._urgent = threading.Event()
        self._left_at = 0
        """Position with whose checkpoint the trial leaves; 0: not known yet."""

    def save(
        self,
        position: Position,
        snapshot: Callable[[], Fill],
        then: Callable[[], None] | None = None,
        keep: Keep = checkpoints.save,
        before_max: int = UNDER_WAY_MAX - 1,
    ) -> None:
        """Saves in the background: `snapshot` copies the state now, and the function that it returns is called once, in another
        thread.

        Waits first while more than `before_max` are under way. `then` is called by the other thread when this checkpoint is
        reported or given up. Raises errors of the background thread that do not concern the store (AgentGone, UserError), at the
        latest at the next call.
        """
        self.wait(before_max)
        if self._failed_in_background and self._retries:
            self._failed_in_background = not self.save_now(position, snapshot, keep=keep)
            if then is not None:
                then()
            return
        fill = snapshot()
        before = self._under_way[-1] if self._under_way else None
        thread = threading.Thread(
            target=self._work, args=(before, position, fill, then, keep), name="tenuto-checkpoint", daemon=True
        )
        self._under_way.append(thread)
        thread.start()

    def save_now(
        self, position: Position, snapshot: Callable[[], Fill], *, leaving: bool = False, keep: Keep = checkpoints.save
    ) -> bool:
        """Saves, and returns when the checkpoint is stored and reported. False if it was given up, and the user was told why.
        `snapshot` is called again for each attempt that could not write its files."""
        self._urgent.set() if leaving else None
        self.wait()
        tries_max = LEAVING_TRIES_MAX if leaving else (None if self._retries else TRIES_MAX)
        return self._save(position, snapshot, tries_max, keep)

    def wait(self, left: int = 0) -> None:
        """Returns when at most `left` checkpoints are under way. Raises the error of the background threads."""
        while self.under_way > left:
            thread = self._under_way[0]
            started = time.monotonic()
            thread.join(WAIT_SAID_SECONDS)
            if thread.is_alive():
                self._say("training waits: the previous checkpoint is still being stored")
                thread.join()
                self._say(f"training goes on after {time.monotonic() - started:.0f} s; save less often, or use a faster store")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def leave_at(self, batches: int) -> None:
        """Gives up checkpoints of earlier positions that wait for their turn, if nothing hangs on them: the trial leaves with one
        of this position, in the time that it is given."""
        self._left_at = batches

    def forget_base(self) -> None:
        """Forgets the base: another process saves a checkpoint of the trial, after which the base may be deleted."""
        if self._base is not None:
            self.wait()
            self._base = None

    def take_stored(self) -> list[str]:
        """Ids that were stored and reported since the last call, oldest first."""
        taken: list[str] = []
        while self._stored:
            taken.append(self._stored.pop(0))
        return taken

    @property
    def full(self) -> bool:
        """True if the next `save` has to wait."""
        return self.under_way >= UNDER_WAY_MAX

    @property
    def under_way(self) -> int:
        """Checkpoints that are being stored or wait for their turn."""
        while self._under_way and not self._under_way[0].is_alive():
            self._under_way.popleft()
        return len(self._under_way)

    def _work(
        self, before: threading.Thread | None, position: Position, fill: Fill, then: Callable[[], None] | None, keep: Keep
    ) -> None:
        used = False

        def once() -> Fill:
            nonlocal used
            if used:
                raise _Consumed
            used = True
            return fill

        if before is not None:
            before.join()
        if self._error is not None:  # the training ends by it; its checkpoints are those before the error
            return
        if before is not None and then is None and position.batches < self._left_at:
            self._say(f"the checkpoint at batch {position.batches} gives way to that with which the trial leaves")
            return
        try:
            stored = self._save(position, once, None if self._retries else TRIES_MAX, keep)
            self._failed_in_background = not stored
            if then is not None:
                then()
        except BaseException as error:
            self._error = error

    def _save(self, position: Position, snapshot: Callable[[], Fill], tries_max: int | None, keep: Keep) -> bool:
        staged: Staged | None = None
        breaks: tuple[str, ...] = ()
        attempt = 0
        try:
            while True:
                attempt += 1
                try:
                    if staged is None:
                        staged = self._stage(position, snapshot)
                        breaks = breaks_in(staged.directory)  # storing it may move its files
                    manifest = keep(self._place.store, staged)
                    break
                except PartMissing as error:
                    if str(error):
                        self._say(f"the checkpoint at batch {position.batches} is given up: {error}")
                    return False
                except _Consumed:
                    self._say(f"the checkpoint at batch {position.batches} is given up; training goes on without it")
                    return False
                except OSError as error:
                    limit = min(tries_max or LEAVING_TRIES_MAX, LEAVING_TRIES_MAX) if self._urgent.is_set() else tries_max
                    if not self._go_on(position, error, attempt, limit):
                        return False
        finally:
            if staged is not None:
                shutil.rmtree(staged.directory, ignore_errors=True)
        report = CheckpointReport(
            trial_id=self._assignment.trial_id,
            allocation_id=self._assignment.allocation_id,
            checkpoint_id=position.checkpoint_id,
            batches=position.batches,
            length=position.length,
            files=manifest.recorded,
            size_bytes=manifest.size_bytes,
            breaks=breaks,
        )
        self._check_size(report)
        self._base = manifest
        self._report(report)
        self._stored.append(position.checkpoint_id)
        return True

    def _check_size(self, report: CheckpointReport) -> None:
        """Raises WillRepeat for a report that is too large for the agent: the checkpoint would silently never be recorded. Its
        files are removed."""
        if len(report.files) <= FILES_ALWAYS_REPORTED or len(report.to_json()) <= REPORT_BYTES_MAX:
            return
        with contextlib.suppress(OSError):
            checkpoints.delete(self._place.store, report.checkpoint_id)
        raise WillRepeat(
            f"the checkpoint at batch {report.batches} has {len(report.files):,} files, more than a report of "
            f"{REPORT_BYTES_MAX >> 20} MiB can name: save fewer, such as one archive of them."
        )

    def _stage(self, position: Position, snapshot: Callable[[], Fill]) -> Staged:
        # The directory first: where it cannot be made, no copy is made or used up.
        directory = self._place.staging(f"{position.checkpoint_id}{self._suffix}")
        try:
            snapshot()(directory)
        except BaseException as error:
            failure = None if isinstance(error, OSError) else storage_error(error, directory)
            shutil.rmtree(directory, ignore_errors=True)
            if failure is not None:
                raise failure from error
            raise
        return Staged(position.checkpoint_id, directory, self._base)

    def _go_on(self, position: Position, error: OSError, attempt: int, tries_max: int | None) -> bool:
        last = tries_max is not None and attempt >= tries_max
        pause = min(2.0 ** (attempt - 1), PAUSE_SECONDS_MAX)
        more = "training goes on without it, free or repair that storage" if last else f"next try in {pause:.0f} s"
        where = self._place.store.url.removeprefix("file://")
        why = getattr(error, "strerror", None) or error
        self._say(f"the checkpoint at batch {position.batches} could not be saved under {where} ({why}); {more}")
        if not last:
            self._sleep(pause)
        return not last


class _Consumed(Exception):
    """The copy of the state was used up by an attempt that could not write it."""
