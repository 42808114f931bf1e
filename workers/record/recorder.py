"""Reports a run's environment and declared data, and warns if data have changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.base import Model
from tenuto.schemas.record import DATA_NAMES_MAX, DataFingerprint
from tenuto.schemas.reports import DataReport, EnvironmentReport
from tenuto.workers.errors import UserError
from tenuto.workers.record.cache import DigestCache, default_cache_file
from tenuto.workers.record.environment import capture
from tenuto.workers.record.fingerprint import fingerprint

Say = Callable[[str], None]
FINGERPRINT_CHARACTERS_SHOWN = 12


class Recorder:
    """Recorder for one start of one trial. `report` sends on the lane `tracker`; `say` writes a line into the trial's log."""

    def __init__(self, assignment: Assignment, report: Callable[[Model], None], say: Say, cache_file: Path | None = None) -> None:
        self._trial_id, self._allocation_id = assignment.trial_id, assignment.allocation_id
        self._known = {item.name: item for item in assignment.known_data}
        self._known_environment = assignment.known_environment
        self._variables = tuple(assignment.config.environment.variables)
        self._secrets = tuple(assignment.config.environment.secrets)
        self._report, self._say = report, say
        self._cache_file = default_cache_file() if cache_file is None else cache_file
        self._declared: dict[str, str] = {}
        self._lock = threading.Lock()
        self._environment_reported = False
        self.process_id = os.getpid()

    def environment(self, models: Iterable[Any] = ()) -> None:
        """Records the environment, just before training begins: imported packages are part of the record. A second call does
        nothing."""
        if self._environment_reported or self.process_id != os.getpid():
            return
        self._environment_reported = True
        record = capture(models, own_variables=self._variables, secret_variables=self._secrets)
        if self._known_environment and record.digest() != self._known_environment:
            self._say(
                "warning: the trial goes on in another environment than before (machine, versions, threads or variables), so its "
                f"numbers may not be those of an uninterrupted run; `tenuto trial record {self._trial_id}` shows both."
            )
        self._report(EnvironmentReport(trial_id=self._trial_id, allocation_id=self._allocation_id, environment=record))

    def data(self, path: Path, name: str) -> None:
        """Records declared data. Raises UserError."""
        with self._lock:
            where = str(path.absolute())
            if self._declared.get(name) == where:
                return
            if len(self._declared) >= DATA_NAMES_MAX:
                raise UserError(
                    f"tenuto.data: a trial declares at most {DATA_NAMES_MAX} files or directories; declare a directory."
                )
            found = fingerprint(path, DigestCache(self._cache_file))
            self._declared[name] = where
            known = self._known.get(name)
            changed = known is not None and known.fingerprint != found.digest
            if known is not None and changed:
                before, now = (value[:FINGERPRINT_CHARACTERS_SHOWN] for value in (known.fingerprint, found.digest))
                self._say(
                    f"warning: the data {name!r} are not what they were when trial {known.recorded_by} started with them "
                    f"(fingerprint {before} then, {now} now): results can differ. "
                    f"`tenuto trial record {self._trial_id}` shows both."
                )
            report = DataReport(
                trial_id=self._trial_id,
                allocation_id=self._allocation_id,
                data=DataFingerprint(
                    name=name,
                    path=where,
                    fingerprint=found.digest,
                    method=found.method,
                    files=found.files,
                    size_bytes=found.size_bytes,
                ),
                changed_from=known.fingerprint if known is not None and changed else None,
            )
            self._report(report)


_current: Recorder | None = None


def install(recorder: Recorder | None) -> None:
    """Sets the recorder for `tenuto.data` in this process."""
    global _current
    _current = recorder


def record_environment(models: Iterable[Any] = ()) -> None:
    """Records this process's environment once, if it runs a trial."""
    if _current is not None:
        _current.environment(models)


def data(path: str | os.PathLike[str], *, name: str | None = None) -> Path:
    """Declares a file or directory that this trial reads, and returns its path.

    Its fingerprint is recorded at each start; if it differs from that of an earlier start, the trial's log says so, and `tenuto
    diff` names it. Outside a trial, and in helper processes of one, it only returns the path.

    `path`: file or directory, on each node where the trial may run. `name`: name by which two runs are compared; None: the path
    as given, relative to the model directory if it is inside. Raises UserError in a trial if the path does not exist or cannot be
    read, or if too many were declared.

        import tenuto

        rows = tenuto.data("rows.csv", name="rows").read_text().splitlines()
    """
    given = Path(path)
    recorder = _current
    if recorder is not None and recorder.process_id == os.getpid():
        recorder.data(given, name or _name_of(given))
    return given


def _name_of(path: Path) -> str:
    """Name of a path; inside the model directory it is relative to that, because the directory itself differs from node to
    node."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_absolute() and path.is_relative_to(here) else str(path)
