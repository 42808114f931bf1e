"""Checkpoints of a script: directories that the script fills, stored completely or not at all, while it goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tenuto.kernel.storage.checkpoints import save as store_whole
from tenuto.kernel.storage.store import StoreError
from tenuto.schemas.assignments import SourceCheckpoint
from tenuto.schemas.reports import BREAK_CHARACTERS_MAX, BREAKS_MAX, CheckpointReport, DamageReport
from tenuto.workers.checkpoints import restoring
from tenuto.workers.checkpoints.exactness import breaks_in
from tenuto.workers.checkpoints.files import RECORD_FILE
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.checkpoints.restoring import Restored
from tenuto.workers.checkpoints.write_failures import storage_error
from tenuto.workers.checkpoints.writer import UNDER_WAY_MAX, CheckpointWriter, Fill, Keep, Position
from tenuto.workers.core_api.script_checkpoints import (
    METADATA_FILE,
    AddedFiles,
    Beside,
    Checkpoint,
    ScriptState,
    States,
    give_up,
    judged,
    loaded_state,
    metadata_text,
    new_id,
    open_states,
    read_added,
    record_of,
)
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.core_api.shards import ShardedSave
from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names
from tenuto.workers.harness.background_saves import BackgroundSaves


class Checkpoints:
    """Checkpoints of a script's trial: type of `run.checkpoint`."""

    def __init__(self, session: Session, length_of: Callable[[int], int], validation_at: Callable[[int], Any]) -> None:
        """Fetches the checkpoint that the trial resumes from, verified. Raises UserError if that is not possible."""
        self._session, self._length_of, self._validation_at = session, length_of, validation_at
        assignment = session.assignment
        try:
            self._place = Place(assignment, session.checkpoint_directory, session.stores)
        except StoreError as error:
            raise UserError(f"The checkpoints' store cannot be opened: {error}") from error
        self._fetched = ExitStack()
        self._source = self._fetched.enter_context(
            restoring.restore(assignment, self._place, say, self._report, gang=session.gang)
        )
        self._completed = False
        self._latest: Checkpoint | None = None
        self._saving: dict[str, Checkpoint] = {}
        """Checkpoints given to the writer, by id."""
        self._ids: set[str] = set()
        self._filling_id = ""
        """Id of the checkpoint whose block was begun last."""
        self._breaks: list[str] = []
        """Sentences of the script, in this process or before, about state that a resumed trial does not restore."""
        self._loads = 0
        """Number of times that the script was seen to have loaded what it restores."""
        self._shards = 0
        """Number of checkpoints of all ranks that were begun."""
        self._suffix = "" if session.gang is None or session.gang.leads else f"-rank{session.gang.rank}"
        self.begun_clock = session.clock.monotonic()
        """Monotonic time, in seconds, when the last one was begun, or else this process."""
        self.resumed_validation: tuple[int, dict[str, float]] | None = None
        """(steps, metrics) of the validation at the position where the trial resumes; None: it has none there."""
        self.is_foreign = False
        """True: the trial begins where one of an earlier experiment ended, or as a copy, and has no checkpoint of its own yet."""
        if self._source is not None:
            self._read(self._source)
        self._states: States | None = None
        """Memory for copies of the script's state; None: it has not saved any."""
        self._beside = Beside()
        self._saves = BackgroundSaves(assignment.config.checkpoint_storage, say)
        self._writer = CheckpointWriter(
            assignment,
            self._place,
            self._report,
            say,
            # Another experiment's checkpoint may be deleted at any time, so it cannot be the base of a save.
            base=self._source.base if self._source is not None and not self._source.source.weights_only else None,
            suffix=self._suffix,
        )

    def __getattr__(self, name: str) -> Any:
        raise determined_names.missing(determined_names.CHECKPOINTS, "run.checkpoint", name)

    @property
    def latest(self) -> Checkpoint | None:
        """The trial's newest stored checkpoint, from which a new process resumes. Until the trial has one of its own, that of
        `searcher.source_checkpoint`, with `weights_only` and at step 0. None: there is none yet."""
        for checkpoint_id in self._writer.take_stored():
            self._latest = self._saving.pop(checkpoint_id)
        return self._latest

    @contextmanager
    def restore(self, *, all_ranks: bool = False) -> Iterator[Path]:
        """Directory with the files of `latest`, read-only: use in a `with`. Raises UserError if there is no checkpoint.

        Of a checkpoint saved with `shard=True` by the present number of ranks, only this rank's files and those of rank 0 are
        fetched; with `all_ranks` those of all. Any other checkpoint is fetched whole.

        A programming error in the block, before anything is trained, ends the trial at once: a restart would meet it again.

            with tenuto.init() as run:
                steps = 0
                if run.checkpoint.latest is not None:
                    with run.checkpoint.restore() as directory:
                        steps = int((directory / "steps").read_text())
        """
        self.wait()
        latest = self.latest
        if latest is None:
            raise UserError("there is no checkpoint to restore; ask `if run.checkpoint.latest is not None` first.")
        if self._source is not None and self._source.source.checkpoint_id == latest.id:
            if all_ranks and self._source.complete is not None and not self._completed:
                self._source.complete()
                self._completed = True
            with judged(latest, lambda: self._loads):
                yield self._source.directory
            return
        source = SourceCheckpoint(checkpoint_id=latest.id, location=latest.location, batches=latest.steps)
        wanted = self._session.assignment.model_copy(update={"checkpoint": source, "earlier_checkpoints": ()})
        ranks = None if all_ranks else self._session.gang
        with restoring.restore(wanted, self._place, say, self._report, gang=ranks, alike=False, anew=False) as restored:
            assert restored is not None
            with judged(latest, lambda: self._loads):
                yield restored.directory

    def loaded(self) -> None:
        """Says that the checkpoint is loaded completely: errors after this call, within `with restore()`, are errors of
        training. A call of `run.should_preempt()` or a report implies it."""
        self._loads += 1

    def not_exact(self, sentence: str) -> None:
        """Says that this trial, if resumed, does not go on as if it had never stopped, and why (`sentence`, such as "the replay
        buffer is not saved"): once in the log, in `exactness.json`, and in `tenuto trial describe`. Raises UserError if the
        sentence is empty."""
        if not isinstance(sentence, str) or not sentence.strip():
            raise UserError(f"run.checkpoint.not_exact({sentence!r}): give a sentence that says why.")
        sentence = " ".join(sentence.split())[:BREAK_CHARACTERS_MAX]
        if sentence in self._breaks or len(self._breaks) >= BREAKS_MAX:
            return
        self._breaks.append(sentence)
        if self._session.gang is None or self._session.gang.leads:
            say(f"this trial is not resumed exactly: {sentence}")

    @contextmanager
    def save(self, steps: int, metadata: Mapping[str, Any] | None = None, *, shard: bool = False) -> Iterator[Path]:
        """An empty directory for the script's files: use in a `with`. They become a checkpoint after the block has ended, while
        the script goes on; if the block raises, it leaves no trace. A second save waits for the first.

        `steps`: position in the trial. `metadata`: any JSON, which `latest.metadata` holds; None: empty. If the storage is full
        or unreachable, the log says so and training goes on, as `checkpoint_storage.on_failure` demands; but when the trial
        leaves its slots, UserError is raised, because the training would be lost. Raises UserError also for other metadata.

        On several ranks the files of rank 0 are stored, and those of the others are discarded. `shard`: True: the files of all
        ranks form one checkpoint; every rank must call it, at the same steps, and put its rank into the names of its files. The
        metadata is rank 0's.

            with tenuto.init() as run:
                for operation in run.operations():
                    with run.checkpoint.save(operation.steps, {"layers": 2}) as directory:
                        (directory / "steps").write_text(str(operation.steps))
                    run.report_validation(operation.steps, {run.metric: 0.5})
        """
        text, gang = metadata_text(metadata or {}), self._session.gang
        self._ids.add(name := new_id(self._session, steps, self._ids))  # at once: the block may save, too
        self._filling_id = name
        if gang is not None and not gang.leads and not shard:
            self._writer.forget_base()
            yield from self._nowhere()
            return
        sharded = None
        if gang is not None and shard:
            self._shards += 1
            sharded = ShardedSave(gang, self._shards)
        length = self._length_of(steps)
        position = Position(name, steps, length)
        beside = self._beside = Beside()
        self.begun_clock = self._session.clock.monotonic()
        try:
            filling = self._place.staging(f"{position.checkpoint_id}-filling{self._suffix}")
        except OSError as error:
            _abandon(sharded)
            give_up(self._session, steps, error)
            filling = None
        if filling is None:
            yield from self._nowhere()
            beside.release()
            return
        try:
            yield filling
            if gang is None or gang.leads:
                self._added(steps, length, text).write(filling)
        except BaseException as error:
            self._beside.release()
            _abandon(sharded)
            failure = storage_error(error, filling)
            shutil.rmtree(filling, ignore_errors=True)
            if failure is not None:
                give_up(self._session, steps, failure)
                return
            raise
        self._begin(position, text)

        def clean() -> None:
            sharded.close() if sharded is not None else None
            beside.release()
            shutil.rmtree(filling, ignore_errors=True)

        # One before it: the files are on the disk already, which has room for few checkpoints.
        keep = store_whole if sharded is None else sharded.keep
        self._store(position, lambda: lambda into: beside.fill(filling, into), clean, keep, before_max=0)

    def save_state(
        self, steps: int, state: Mapping[str, Any], metadata: Mapping[str, Any] | None = None, *, wait: bool = False
    ) -> None:
        """Saves a state of tensors, numbers and other picklable values as a checkpoint: copies it, and returns. It is written and
        stored while the script goes on, which may change the state at once; at most two are under way, and a third one waits.
        `load_state` returns it. Needs torch.

        `steps`: position in the trial. `state`: values by name, such as state dicts. `metadata`: any JSON, which
        `latest.metadata` holds; None: empty. `wait`: True: returns when the checkpoint is stored, or given up, which the log
        says. It waits, too, where the trial is told to leave, where there is no memory for a copy (the log says so), and with
        `checkpoint_storage.async_save: false`. Full or unreachable storage is told as by `save`. Raises UserError for values that
        cannot be pickled. On several ranks the state of rank 0 is stored; call it on all of them.

            with tenuto.init() as run:
                for operation in run.operations():
                    run.checkpoint.save_state(operation.steps, {"steps": operation.steps, "words": ["a", "b"]})
                    run.report_validation(operation.steps, {run.metric: 0.5})
        """
        if not isinstance(state, Mapping):
            raise UserError(f"run.checkpoint.save_state: the state must be a dict, not {type(state).__name__}.")
        text, gang = metadata_text(metadata or {}), self._session.gang
        if gang is not None and not gang.leads:
            self._writer.forget_base()
            return
        if self._states is None:
            self._states = open_states("save_state")
        states, length = self._states, self._length_of(steps)
        position = Position(new_id(self._session, steps, self._ids), steps, length)
        self.begun_clock = self._session.clock.monotonic()
        self._begin(position, text)
        given = ScriptState(steps, states, dict(state), self._added(steps, length, text))
        if wait or self._saves.way(given, self._writer, optional=False) == "wait":
            self._store_now(position, lambda: given.write, store_whole)
        else:
            # The script has been told that it is saved, so none of these gives way to a later one.
            self._store(position, given.snapshot, lambda: None, store_whole, UNDER_WAY_MAX - 1)

    def load_state(self) -> dict[str, Any]:
        """State that `save_state` saved in `latest`, its tensors on the CPU. Values that are no tensors, numbers, words or
        containers of these are unpickled, so load only what you trust. Raises UserError if there is no checkpoint, or if another
        way of saving made it.

            with tenuto.init() as run:
                words = run.checkpoint.load_state()["words"] if run.checkpoint.latest is not None else []
        """
        with self.restore() as directory:
            return loaded_state(directory)

    def _begin(self, position: Position, metadata: str) -> None:
        self.is_foreign = False
        name = position.checkpoint_id
        self._ids.add(name)
        self._saving[name] = Checkpoint(name, position.batches, json.loads(metadata), self._place.location_of(name))

    def _added(self, steps: int, length: int, metadata: str) -> AddedFiles:
        record = record_of(self._session, steps, length, self._validation_at(steps))
        return AddedFiles(record, metadata, tuple(self._breaks))

    def adopt(self) -> None:
        """Stores another trial's checkpoint, from which this one begins, as this trial's own: it counts for this trial, so it
        must be there as long as this trial is."""
        latest = self.latest
        if not self.is_foreign or latest is None:
            return
        with self.restore(all_ranks=True) as files, self.save(latest.steps, latest.metadata) as directory:
            if self._session.gang is None or self._session.gang.leads:
                ours = shutil.ignore_patterns(RECORD_FILE, METADATA_FILE)
                shutil.copytree(files, directory, dirs_exist_ok=True, ignore=ours)

    def _report(self, report: CheckpointReport | DamageReport) -> None:
        self._session.reports.report("tracker", report)

    def wait(self) -> None:
        """Returns when nothing is being stored."""
        self._writer.wait()

    def close(self) -> None:
        """Deletes the local copy of the checkpoint from which the trial resumed. Called when the run is closed."""
        self._fetched.close()

    def _store(
        self, position: Position, snapshot: Callable[[], Fill], then: Callable[[], None] | None, keep: Keep, before_max: int
    ) -> None:
        if not self._session.leaves:
            self._writer.save(position, snapshot, then=then, keep=keep, before_max=before_max)
            return
        try:
            self._store_now(position, snapshot, keep)
        finally:
            if then is not None:
                then()

    def _store_now(self, position: Position, snapshot: Callable[[], Fill], keep: Keep) -> None:
        if leaving := self._session.leaves:
            self._writer.leave_at(position.batches)
        if not self._writer.save_now(position, snapshot, leaving=leaving, keep=keep) and leaving:
            raise UserError(f"The checkpoint could not be saved in {self._place.store.url}; free space there, or repair it.")

    def _nowhere(self) -> Iterator[Path]:
        """An empty directory whose files are discarded: the block runs all the same, so the script need not know."""
        with self._place.scratch() as directory:
            yield directory

    def _read(self, restored: Restored) -> None:
        source, directory = restored.source, restored.directory
        record, metadata = read_added(directory, source.checkpoint_id)
        if not source.weights_only:
            self._breaks = list(breaks_in(directory))
        steps = 0 if source.weights_only else source.batches
        self._latest = Checkpoint(source.checkpoint_id, steps, metadata, source.location, source.weights_only)
        if self._session.gang is None or self._session.gang.leads:
            if source.trusted_user:
                say(f"these are files of a trial of {source.trusted_user}: the submitter of this experiment chose to trust them")
            does = "begins with the weights of" if source.weights_only else "resumes from"
            say(f"{does} checkpoint {source.checkpoint_id} at step {steps}")
        # The position and validation of another trial's checkpoint are not this trial's.
        self.is_foreign = not source.weights_only and record.trial_id != self._session.assignment.trial_id
        if record.validation is not None and record.trial_id == self._session.assignment.trial_id:
            self.resumed_validation = (source.batches, record.validation)


def _abandon(sharded: ShardedSave | None) -> None:
    sharded.abandon() if sharded is not None else None
