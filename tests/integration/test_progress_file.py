"""The file of ranks' progress between real processes: no reader ever sees half of one record and half of another, also where the
writer is killed or stopped in the middle of writing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from tenuto.workers.launch.progress import COMPUTING, ProgressFile, RankProgress
from tests.support.waiting import ended, until

READS = int(os.environ.get("TEST_READS", 300_000))
CHANGES = 1_000  # as many records at least the reader must have seen come
READING_SECONDS = 120.0  # a machine with one free core gives the writer its turns a few times a second only
KILLS = 20
ROOT = Path(__file__).parents[2]


def record(number: int) -> RankProgress:
    """A record with its number in all fields, so that a mixture of two is noticed."""
    return RankProgress(number, number % 4, float(number), float(number) / 2, float(number) * 3)


WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
from tests.integration.test_progress_file import ProgressFile, record
file = ProgressFile(Path(sys.argv[1]), 2)
for number in itertools.count(1):
    file.write(1, record(number))
"""


def torn(progress: RankProgress) -> bool:
    return progress.steps != 0 and progress != record(progress.steps)


@contextmanager
def writing(file: ProgressFile, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes rank 1's record as fast as it can. Started anew, not forked: in a fork of this one, which may have
    threads and gRPC, anything may fail."""
    process = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(path)], cwd=ROOT)
    try:
        until(lambda: file.read(1).steps, gone=ended(process))
        yield process
    finally:
        process.kill()
        process.wait()


def test_millions_of_reads_beside_a_writer_see_whole_records_only(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress", 2, create=True)
    with writing(file, tmp_path / "progress") as process:
        last, reads, changes, found, until = 0, 0, 0, [], time.monotonic() + READING_SECONDS
        while reads < READS or (changes < CHANGES and time.monotonic() < until):
            progress, reads = file.read(1), reads + 1
            if progress.steps == last and progress.since == last:
                if reads >= READS:
                    os.sched_yield()  # enough is read: now the writer must have its turns
                continue
            if torn(progress) or progress.steps < last:  # an older one after a newer one is as wrong
                found.append(progress)
            changes, last = changes + 1, progress.steps
        assert process.poll() is None
    assert not found, f"{len(found)} of {reads} reads are wrong, such as {found[:3]}"
    assert changes >= CHANGES, "the writer hardly ran beside the reader"


class HeldUp:
    """The mapped file, for a reader that is held up between its looks at the two places while `meanwhile` happens."""

    def __init__(self, file: ProgressFile, meanwhile: Callable[[], None]) -> None:
        self._map, self._meanwhile, self._looks = file._map, meanwhile, 0

    def __getitem__(self, place: slice) -> bytes:
        data = self._map[place]
        self._looks += 1
        if self._looks == 1:
            self._meanwhile()
        return data


def test_a_reader_that_is_held_up_never_goes_back_to_an_older_record(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    file = ProgressFile(path, 1, create=True)
    writer = ProgressFile(path, 1)
    writer.write(0, record(2))
    writer.write(0, record(3))
    assert file.read(0) == record(3)

    def meanwhile() -> None:
        writer.write(0, record(4))
        before = path.read_bytes()
        writer.write(0, record(5))
        after = path.read_bytes()
        first = next(at for at in range(len(after)) if before[at] != after[at])
        with path.open("r+b") as cut:
            cut.write(after[: first + 1] + before[first + 1 :])

    whole = file._map
    file._map = cast(Any, HeldUp(file, meanwhile))
    assert file.read(0) == record(3)
    file._map = whole
    assert file.read(0) == record(4)


def test_a_writer_that_is_killed_or_stopped_at_any_moment_leaves_a_whole_record(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(KILLS):
        file = ProgressFile(tmp_path / "progress", 2, create=True)
        with writing(file, tmp_path / "progress") as process:
            time.sleep(chance.random() / 100)
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            stopped = file.read(1)
            process.kill()
            process.wait()
            anew = ProgressFile(tmp_path / "progress", 2)
            assert not torn(stopped)
            assert file.read(1) == anew.read(1) == stopped, "nobody has written since"


def test_what_a_write_that_was_cut_short_leaves_is_never_read(tmp_path: Path) -> None:
    """Cut after each byte: the record before it stands, for who read on and for who opens the file anew."""
    path = tmp_path / "progress"
    file = ProgressFile(path, 1, create=True)
    file.write(0, record(1))
    before = path.read_bytes()
    file.write(0, record(2))
    after = path.read_bytes()
    changed = [at for at in range(len(after)) if before[at] != after[at]]
    for at in range(changed[0], changed[-1] + 1):
        path.write_bytes(after[:at] + before[at:])
        assert ProgressFile(path, 1).read(0) in (record(1), record(2)), at
    path.write_bytes(after)
    assert ProgressFile(path, 1).read(0) == record(2)
    again = ProgressFile(path, 1)
    again.write(0, RankProgress(3, COMPUTING, 1.0, 0.0, 0.0))
    assert ProgressFile(path, 1).read(0).steps == 3, "a writer goes on where another one was killed"
