"""One process's part in one trial: what it was told, whom it tells. At most one at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.base import Model
from tenuto.workers.harness.directives import DirectiveBox
from tenuto.workers.harness.gang import Gang

if TYPE_CHECKING:
    from tenuto.workers.core_api.run import Run
    from tenuto.workers.harness.script_waits import ScriptWaits


class Reports(Protocol):
    """Takes reports in order: the harness's Reporter, or a file where there is no cluster."""

    def report(self, lane: Literal["tracker", "metrics", "logs"], body: Model) -> None: ...

    def flush(self) -> None:
        """Returns when every report is where it outlives this process."""
        ...

    def close(self) -> None: ...


@dataclass
class Session:
    assignment: Assignment
    box: DirectiveBox
    reports: Reports
    checkpoint_directory: Path
    clock: Clock
    local_directory: Path | None = None
    """Where the record is kept; None in a cluster."""
    at_begin: Callable[[], None] | None = None
    """Called once, when the script begins to train: what it has imported by then is part of the record."""
    at_init: list[Callable[[], None]] = field(default_factory=list)
    """Called once, when the script has called `tenuto.init()`."""
    at_close: list[Callable[[], None]] = field(default_factory=list)
    process_id: int = field(default_factory=os.getpid)
    gang: Gang | None = None
    """This process is one of several ranks: rank 0 alone reports and saves."""
    stores: Stores = field(default_factory=Stores)
    """Of checkpoints: those that the trial needs."""
    waits: ScriptWaits | None = None
    """Of one of several ranks: what the script waits for the others."""
    run: Run | None = None
    """What `tenuto.init()` returned."""


_current: Session | None = None


def current() -> Session | None:
    return _current


def set_current(session: Session | None) -> None:
    global _current
    _current = session


def say(text: str) -> None:
    """A line to the user: in a cluster it stands in the trial's log."""
    print(f"tenuto: {text}", file=sys.stderr, flush=True)
