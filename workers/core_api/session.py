"""The session: one process's part in one trial. At most one exists at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Action, Assignment
from tenuto.schemas.base import Model
from tenuto.workers.connection.directives import DirectiveBox
from tenuto.workers.harness.report_ids import Ids, ids_of
from tenuto.workers.harness.schedule import Shorten
from tenuto.workers.launch.gang import Gang

if TYPE_CHECKING:
    from tenuto.workers.core_api.run import Run
    from tenuto.workers.harness.script_waits import ScriptWaits


class ReportSink(Protocol):
    """Receiver of reports, in order: the harness's Reporter, or a file without a cluster."""

    def report(self, lane: Literal["tracker", "metrics", "logs"], *bodies: Model) -> None: ...

    def flush(self) -> None:
        """Returns when every report is in a place that outlives this process."""
        ...

    def close(self) -> None: ...


@dataclass
class Session:
    assignment: Assignment
    box: DirectiveBox
    reports: ReportSink
    checkpoint_directory: Path
    clock: Clock
    local_directory: Path | None = None
    """Directory of the record; None in a cluster."""
    at_begin: Callable[[], None] | None = None
    """Called once, when the script begins to train: modules imported by then are part of the record."""
    at_init: list[Callable[[], None]] = field(default_factory=list)
    """Functions called once, when the script has called `tenuto.init()`."""
    at_close: list[Callable[[], None]] = field(default_factory=list)
    process_id: int = field(default_factory=os.getpid)
    gang: Gang | None = None
    """The gang, if this process is one of several ranks; only rank 0 reports and saves."""
    stores: Stores = field(default_factory=Stores)
    """Stores of checkpoints that the trial needs."""
    waits: ScriptWaits | None = None
    """The script's waits for other ranks, if there are any."""
    shorten: Shorten | None = None
    """Makes the schedule of a rehearsal."""

    @property
    def leaves(self) -> bool:
        """True if the trial is to give up its slots and go on later."""
        return self.box.current.action in ("preempt", "pause")

    run: Run | None = None
    """Result of `tenuto.init()`."""
    trained: Action | None = None
    """Action by which a training loop in the script was told to leave; None if the script has none, or it is not over."""

    @property
    def is_over(self) -> bool:
        """True once the script has closed its run. Without a cluster another one may begin then."""
        return self.local_directory is not None and self.run is not None and self.run.is_closed

    @property
    def ids(self) -> Ids:
        return ids_of(self.assignment)


_current: Session | None = None


def current() -> Session | None:
    return _current


def set_current(session: Session | None) -> None:
    global _current
    _current = session


def say(text: str) -> None:
    """Prints a line for the user; in a cluster it is in the trial's log."""
    print(f"tenuto: {text}", file=sys.stderr, flush=True)
