"""How far each rank of an agent is: a few numbers per rank in one mapped file, written by the rank and read by its supervisor.

Writing costs a rank some microseconds per step and no system call. A torn read shows at worst one odd number for a moment:
nothing is decided on a single look.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RECORD_BYTES = 64
_RECORD = struct.Struct("<qqddd")
"""steps, phase, since (monotonic seconds), own seconds per step (smoothed), longest step in seconds"""
STARTING, COMPUTING, WAITING, OUTSIDE = range(4)
"""STARTING: no step was made yet. COMPUTING: works on a step by itself. WAITING: has done its share of the step and waits for the
others. OUTSIDE: between steps: it validates, saves, or waits for the search."""
PHASES = ("starting", "computing", "waiting for the others", "between steps")
SMOOTHING = 0.2
SCRIPT_STEPS = 20
"""Of a script: its last steps, whose mean is told."""
SCRIPT_STEPS_APART = 2
"""The longest of these are left out: a script may do something now and then that is no step, such as a validation."""


@dataclass(frozen=True)
class Progress:
    steps: int
    phase: int
    since: float
    own_seconds: float
    longest_seconds: float


class ProgressFile:
    def __init__(self, path: Path, ranks: int, *, create: bool = False) -> None:
        """Raises OSError."""
        if create:
            path.write_bytes(b"\0" * RECORD_BYTES * ranks)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), RECORD_BYTES * ranks)
        if create:  # a rank that is slow to start has been starting since now
            for index in range(ranks):
                self.write(index, Progress(0, STARTING, time.monotonic(), 0.0, 0.0))

    def read(self, index: int) -> Progress:
        return Progress(*_RECORD.unpack_from(self._map, index * RECORD_BYTES))

    def write(self, index: int, progress: Progress) -> None:
        _RECORD.pack_into(
            self._map,
            index * RECORD_BYTES,
            progress.steps,
            progress.phase,
            progress.since,
            progress.own_seconds,
            progress.longest_seconds,
        )


class ProgressWriter:
    """One rank's record. Its own time of a step is what it takes to read the data, and the step without `waiting`: ranks that
    wait for each other take equally long in all, and only their own times tell who makes the others wait."""

    def __init__(self, file: ProgressFile, index: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._index, self._clock = file, index, clock
        self._steps, self._own, self._longest = 0, 0.0, 0.0
        self.waits_are_seen = True
        """False: a device waits for the others, not this process. What this process does after it first handed something over
        may then be such a wait, so it is not counted."""
        self._phase = STARTING
        self._began = self._clock()
        self._reads_since: float | None = None
        self._own_now = 0.0
        """Of this step, before `_counts_from`."""
        self._counts_from: float | None = None
        self._recent: deque[float] = deque(maxlen=SCRIPT_STEPS)
        self._apart = False
        self._write(STARTING, self._began)

    def read(self) -> None:
        """The data of the next step is read: own time, but none with a learnt deadline."""
        self._reads_since = self._clock()

    def begin(self) -> None:
        """A step begins."""
        self._began = self._counts_from = self._clock()
        self._own_now = self._began - self._reads_since if self._reads_since is not None else 0.0
        self._reads_since = None
        self._write(COMPUTING, self._began)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """This rank does nothing but wait for the others, or exchange something with them. Of no effect between steps."""
        begun = self.wait_begins()
        try:
            yield
        finally:
            if begun:
                self.wait_ends()

    def wait_begins(self) -> bool:
        """As `waiting`, where the two ends are no block. False: of no effect, so `wait_ends` must not be called."""
        if self._phase != COMPUTING:
            return False
        self._count(now := self._clock())
        self._write(WAITING, now)
        return True

    def wait_ends(self) -> None:
        now = self._clock()
        self._counts_from = now if self.waits_are_seen else None
        self._write(COMPUTING, now)

    def add_own(self, seconds: float) -> None:
        """Of this step: what is known only afterwards. Negative: so much of what was counted was a wait."""
        self._own_now += seconds

    def tick(self) -> None:
        """A script's step is over, and the next one begins. What happens in between, a validation perhaps, has no usual length,
        so only the configured deadline counts."""
        now = self._clock()
        if self._counts_from is not None:
            self._count(now)
            if self.waits_are_seen and not self._apart:
                self._recent.append(max(0.0, self._own_now))
                if len(self._recent) == SCRIPT_STEPS:
                    self._own = sum(sorted(self._recent)[:-SCRIPT_STEPS_APART]) / (SCRIPT_STEPS - SCRIPT_STEPS_APART)
        self._own_now, self._apart, self._counts_from = 0.0, False, now
        self._steps += 1
        self._longest = math.inf
        self._write(COMPUTING, now)

    def leave_out(self) -> None:
        """What is done since the last `tick` is no step alone: it is not compared."""
        self._apart = True

    def idle(self) -> None:
        """Nothing is due until a step begins."""
        self._counts_from = None
        self._write(OUTSIDE, self._clock())

    def end(self) -> None:
        """The step is over; nothing is due by a deadline until the next one begins."""
        now = self._clock()
        self._count(now)
        own, self._counts_from = self._own_now, None
        self._own = own if self._own == 0.0 else (1 - SMOOTHING) * self._own + SMOOTHING * own
        self._steps += 1
        self._longest = max(self._longest, now - self._began)
        self._write(OUTSIDE, now)

    def _count(self, now: float) -> None:
        if self._counts_from is not None:
            self._own_now += now - self._counts_from

    def _write(self, phase: int, since: float) -> None:
        self._phase = phase
        self._file.write(self._index, Progress(self._steps, phase, since, self._own, self._longest))
