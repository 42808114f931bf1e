"""Progress of each rank of an agent: a few numbers per rank in one mapped file, written by the rank and read by its supervisor.

Writing costs a rank about a microsecond per step and no system call, and takes no lock, because a rank may be killed or stopped
at any instruction. So each rank has two places that it writes in turn. A record is packed with its sequence number and a
checksum, and copied in one piece; a reader takes the newer of the two that fit their checksums. Neither an unfinished or
interrupted copy, nor stores that a processor makes visible in another order, can be mistaken for a record, and the previous one
is still complete.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PLACE_BYTES = 64
"""Size of one place: a cache line, so that ranks that write at once do not slow each other."""
PLACES = 2
RECORD_BYTES = PLACES * PLACE_BYTES
_RECORD = struct.Struct("<Qqqddd")
"""sequence (from 1), steps, phase, since (monotonic seconds), own seconds per step (smoothed), longest step in seconds"""
_CHECKSUM = struct.Struct("<I")
_SIZE = _RECORD.size + _CHECKSUM.size
READS_MAX = 100
"""Most attempts of a read. One that meets writes in both places is too late for either; the next one hardly is."""
STARTING, COMPUTING, WAITING, OUTSIDE = range(4)
"""STARTING: no step was made yet. COMPUTING: the rank works on a step by itself. WAITING: it has done its share of the step
and waits for the others. OUTSIDE: between steps: it validates, saves, or waits for the search."""
PHASES = ("starting", "computing", "waiting for the others", "between steps")
SMOOTHING = 0.2
SCRIPT_STEPS = 20
"""Number of a script's last steps over which the mean is taken."""
SCRIPT_STEPS_APART = 2
"""Number of the longest of these that are left out: a script may do something now and then that is no step, such as a
validation."""


@dataclass(frozen=True)
class RankProgress:
    steps: int
    phase: int
    since: float
    own_seconds: float
    longest_seconds: float


_UNWRITTEN = RankProgress(0, STARTING, math.inf, 0.0, 0.0)
"""Record of a rank that has not begun."""


class ProgressFile:
    """Records of all ranks. Each has one writer at a time, and any number of readers."""

    def __init__(self, path: Path, ranks: int, *, create: bool = False) -> None:
        """Raises OSError; ValueError if the file is too short."""
        if create:
            path.write_bytes(b"\0" * RECORD_BYTES * ranks)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), RECORD_BYTES * ranks)
        self._written: dict[int, int] = {}
        """Sequence number of the last record written here, by rank."""
        self._seen: dict[int, tuple[int, RankProgress]] = {}
        """Sequence number and record of the last read, by rank."""
        if create:  # a rank that is slow to start has been starting since now
            for index in range(ranks):
                self.write(index, RankProgress(0, STARTING, time.monotonic(), 0.0, 0.0))

    def read(self, index: int) -> RankProgress:
        """The newest complete record; if none can be read now, that of the last read.

        A reader that is delayed between the two places may find the older record complete and, a few writes later, the other
        place in the middle of a write: then the record of the last read is newer.
        """
        seen = self._seen.get(index, (0, _UNWRITTEN))
        for _ in range(READS_MAX):
            found = self._newest(index)
            if found is not None:
                if found[0] >= seen[0]:
                    self._seen[index] = seen = found
                break
        return seen[1]

    def write(self, index: int, progress: RankProgress) -> None:
        sequence = self._written.get(index)
        if sequence is None:  # another process wrote before, and may have been killed while it did
            found = self._newest(index)
            sequence = found[0] if found is not None else 0
        self._written[index] = sequence = sequence + 1
        data = _RECORD.pack(
            sequence, progress.steps, progress.phase, progress.since, progress.own_seconds, progress.longest_seconds
        )
        data += _CHECKSUM.pack(zlib.crc32(data))
        place = index * RECORD_BYTES + sequence % PLACES * PLACE_BYTES
        self._map[place : place + len(data)] = data

    def _newest(self, index: int) -> tuple[int, RankProgress] | None:
        newest: tuple[int, ...] | None = None
        for place in range(index * RECORD_BYTES, (index + 1) * RECORD_BYTES, PLACE_BYTES):
            data = self._map[place : place + _SIZE]
            if data[_RECORD.size :] == _CHECKSUM.pack(zlib.crc32(data[: _RECORD.size])):
                fields = _RECORD.unpack_from(data)
                if newest is None or fields > newest:  # the sequence number is the first
                    newest = fields
        return (newest[0], RankProgress(*newest[1:])) if newest else None


class ProgressWriter:
    """Writer of one rank's record. The rank's own time of a step is the time for reading the data, and the step without
    `waiting`: ranks that wait for each other take equally long in all, and only their own times tell which one delays the
    others."""

    def __init__(self, file: ProgressFile, index: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._index, self._clock = file, index, clock
        self._steps, self._own, self._longest = 0, 0.0, 0.0
        self.waits_are_seen = True
        """False: a device waits for the others, not this process. After this process first handed work to the device it may be
        waiting for it, so that time is not counted."""
        self._phase = STARTING
        self._began = self._clock()
        self._reads_since: float | None = None
        self._own_now = 0.0
        """Own seconds of this step before `_counts_from`."""
        self._counts_from: float | None = None
        self._recent: deque[float] = deque(maxlen=SCRIPT_STEPS)
        self._apart = False
        self._write(STARTING, self._began)

    def read(self) -> None:
        """The data of the next step is read: own time, without a learnt deadline."""
        self._reads_since = self._clock()

    def begin(self) -> None:
        """A step begins."""
        self._began = self._counts_from = self._clock()
        self._own_now = self._began - self._reads_since if self._reads_since is not None else 0.0
        self._reads_since = None
        self._write(COMPUTING, self._began)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context in which this rank only waits for the others, or exchanges data with them. Without effect between steps."""
        begun = self.wait_begins()
        try:
            yield
        finally:
            if begun:
                self.wait_ends()

    def wait_begins(self) -> bool:
        """Like `waiting`, for a beginning and an end that are no block. False: without effect, so `wait_ends` must not be
        called."""
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
        """Adds own seconds of this step that are known only afterwards. Negative: that much of the counted time was a wait."""
        self._own_now += seconds

    def tick(self) -> None:
        """A script's step is over, and the next one begins. Work in between, such as a validation, has no usual length, so
        only the configured deadline applies."""
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
        """Excludes the time since the last `tick` from comparisons: it was not only a step."""
        self._apart = True

    def idle(self) -> None:
        """Nothing is due until a step begins."""
        self._counts_from = None
        self._write(OUTSIDE, self._clock())

    def end(self) -> None:
        """The step is over; no deadline applies until the next one begins."""
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
        self._file.write(self._index, RankProgress(self._steps, phase, since, self._own, self._longest))
