"""Opens the record of a run without a cluster for one process that goes on with it."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tenuto.kernel.clock import Clock, SystemClock
from tenuto.schemas.assignments import Assignment, SourceCheckpoint
from tenuto.schemas.config.storage import SHARED_STORE, CheckpointStorage
from tenuto.schemas.events.trial import files_hash
from tenuto.schemas.ids import allocation_id, location_of, trial_id
from tenuto.schemas.record import KnownData
from tenuto.schemas.reports import DataReport, EnvironmentReport
from tenuto.workers.connection.directives import Directive, DirectiveBox
from tenuto.workers.core_api.local_record import (
    CODE_DIRECTORY,
    RUN_FILE,
    Body,
    LocalReports,
    RunDescription,
    checkpoints_of,
    read_lines,
    store_of,
    sweep,
)
from tenuto.workers.core_api.session import Session, say
from tenuto.workers.errors import UserError
from tenuto.workers.harness import notifier
from tenuto.workers.record import recorder
from tenuto.workers.record.code import keep_sources

LOCK_FILE = "lock"
LOCAL_EXPERIMENT_ID = 0
"""Id of the experiment without a cluster; those of a cluster count from 1."""
SCRIPT_ENDS = "the script saves and ends when it next asks run.should_preempt()"


def open_record(
    directory: Path,
    description: RunDescription,
    unlock: Callable[[], None],
    *,
    show: Callable[[Body], None] | None = None,
    ends: str = SCRIPT_ENDS,
    sources: Path | None = None,
    clock: Clock | None = None,
) -> Session:
    """A session that goes on with the locked record, or begins it. `show` is told each report. `ends`: the moment when an
    interrupted training leaves. `sources`: directory of the user's code; None: that of the script."""
    clock = SystemClock() if clock is None else clock
    if not (directory / RUN_FILE).exists():
        # Atomic, because a half-written file would make the directory useless.
        partial = directory / f"{RUN_FILE}.partial"
        partial.write_bytes(description.to_json() + b"\n")
        os.replace(partial, directory / RUN_FILE)
    box = DirectiveBox(Directive("run", description.config.searcher.max_length.value))
    reports = LocalReports(directory, description, box, clock, show)
    sweep(directory)
    assignment = _assignment(directory, description, reports.starts)
    recorder.install(recorder.Recorder(assignment, lambda body: reports.report("tracker", body), say))
    notifier.install(notifier.Notifier(assignment, lambda body: reports.report("tracker", body), say, clock.monotonic))

    def keep() -> None:
        if not description.context_hash:  # else the whole model directory is in the record already
            keep_sources(directory / CODE_DIRECTORY, sources)

    def close() -> None:
        recorder.install(None)
        notifier.install(None)
        keep()  # once more: some are imported late
        reports.close()

    keep()
    say(f"no cluster here: the record of this run is kept in {directory}")
    return Session(
        assignment=assignment,
        box=box,
        reports=reports,
        checkpoint_directory=store_of(directory).root,
        clock=clock,
        local_directory=directory,
        at_close=[close, _leave_on_signals(box, ends), unlock],
    )


def lock(directory: Path) -> Callable[[], None]:
    """Locks the record; returns the function that unlocks it. Raises UserError if another process holds it."""
    try:
        file = (directory / LOCK_FILE).open("w")
    except OSError as error:
        raise UserError(f"{directory / LOCK_FILE} cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(f"another process writes the record in {directory}; wait for it, or give another directory.") from None
    return file.close


def _assignment(directory: Path, description: RunDescription, starts: int) -> Assignment:
    """Assignment for the process of the `starts`-th start, as an agent would hand it out: it goes on from the latest
    checkpoint."""
    trial = trial_id(LOCAL_EXPERIMENT_ID, 1)
    sources = tuple(
        SourceCheckpoint(
            checkpoint_id=report.checkpoint_id,
            location=location_of(SHARED_STORE, trial, report.checkpoint_id),
            batches=report.batches,
            files_hash=files_hash(report.files),
        )
        for report in reversed(checkpoints_of(directory))
    )
    return Assignment(
        allocation_id=allocation_id(trial, starts),
        trial_id=trial,
        trial_number=1,
        experiment_id=LOCAL_EXPERIMENT_ID,
        # A run without a cluster keeps its checkpoints in its record, whatever store the configuration names.
        config=description.config.model_copy(update={"checkpoint_storage": CheckpointStorage()}),
        context_hash=description.context_hash,
        hyperparameters=description.hyperparameters,
        trial_seed=description.seed if description.trial_seed is None else description.trial_seed,
        experiment_seed=description.seed,
        slots=(),
        checkpoint=sources[0] if sources else None,
        earlier_checkpoints=sources[1:],
        target_length=description.config.searcher.max_length.value,
        **_known(directory, trial),
    )


def _known(directory: Path, trial: str) -> dict[str, Any]:
    """Environment and data that earlier processes of this run recorded, for comparison."""
    data: dict[str, KnownData] = {}
    environment = ""
    for line in read_lines(directory):
        if isinstance(line.body, DataReport):
            found = line.body.data
            data[found.name] = KnownData(name=found.name, fingerprint=found.fingerprint, recorded_by=trial)
        elif isinstance(line.body, EnvironmentReport):
            environment = line.body.environment.digest()
    return {"known_data": tuple(data.values()), "known_environment": environment}


def _leave_on_signals(box: DirectiveBox, ends: str) -> Callable[[], None]:
    """Makes the first SIGINT or SIGTERM ask the training to save and leave; a second SIGINT ends it at once. `ends`: the moment
    when it does. Returns the function that undoes this."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread may, and then another owns the signals
    process_id = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process_id:  # a forked helper of the script's: it has nothing to save
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        signal.signal(number, before[signal.Signals(number)])
        box.leave("preempt")
        say(f"asked to leave: {ends}; Ctrl-C again ends it at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
