"""The second lane of facts: who goes by it, and how much of the loop's time it is given."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.commit_sizes import (
    COMMIT_REPORTS_MAX,
    IDLE_SECONDS,
    YIELDING_REPORTS_MAX,
    YIELDING_REPORTS_MIN,
    CommitSizes,
)
from tenuto.workers.agent.database import open_database
from tenuto.workers.agent.overflow import OVERFLOW_REPORTS, room_in
from tenuto.workers.agent.spool import Spool

COUNT = st.integers(0, 3 * OVERFLOW_REPORTS)


@given(in_tracker=COUNT, in_overflow=COUNT, queued=COUNT)
def test_an_allocation_has_room_in_one_lane_only_and_not_for_ever_in_none(in_tracker: int, in_overflow: int, queued: int) -> None:
    tracker, overflow = (room_in(lane, in_tracker, in_overflow, queued) for lane in ("tracker", "overflow"))
    assert not (tracker and overflow)
    assert max(tracker, overflow) <= queued
    # Its order is kept: nothing is numbered in one lane while something of it is on its way in the other.
    assert not (tracker and in_overflow)
    assert not (overflow and in_tracker)
    assert in_tracker + tracker <= max(OVERFLOW_REPORTS, in_tracker)
    if queued and not in_tracker and not in_overflow:
        assert tracker or overflow


def test_many_facts_go_by_the_second_lane_and_few_by_the_first() -> None:
    assert room_in("tracker", 0, 0, OVERFLOW_REPORTS) == OVERFLOW_REPORTS
    assert room_in("overflow", 0, 0, OVERFLOW_REPORTS + 1) == OVERFLOW_REPORTS + 1
    assert room_in("tracker", 0, 0, OVERFLOW_REPORTS + 1) == 0
    assert room_in("overflow", 0, 1, 1) == 1, "it stays there until all of it is committed"


def test_the_second_lane_takes_short_turns_while_the_first_is_used() -> None:
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    assert first.most(0.0) == COMMIT_REPORTS_MAX
    assert second.most(0.0) == YIELDING_REPORTS_MAX
    for number in range(50):
        first.committed(0.005 + number % 2 * 0.02, now=float(number))  # every second one waited for the other lane
    assert second.most(50.0) == YIELDING_REPORTS_MIN
    assert second.most(50.0 + IDLE_SECONDS) == YIELDING_REPORTS_MAX
    assert first.most(50.0) == COMMIT_REPORTS_MAX


@pytest.mark.parametrize(("fixed_seconds", "rate_min"), [(0.004, 1_000), (0.01, 700), (0.02, 650), (0.05, 650)])
def test_a_dear_commit_does_not_keep_the_second_lane_small(fixed_seconds: float, rate_min: int) -> None:
    """A database far away: a commit takes long before its first report. One of the first lane waits for the second's now and
    then, which must not make the second's longer and longer."""
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    now, second_seconds, reports = 0.0, 0.0, 0
    chance = random.Random(1)
    for number in range(1_000):
        if number % 5 == 0:
            first.committed(fixed_seconds + 0.0004 + chance.random() * second_seconds, now)
        reports += second.most(now)
        second_seconds = fixed_seconds + second.most(now) * 0.0004
        now += second_seconds
        second.committed(second_seconds, now)
    assert second_seconds <= 2.5 * fixed_seconds
    assert reports / now >= rate_min


def test_the_publisher_may_ask_while_the_disk_thread_changes_the_queues(tmp_path: Path) -> None:
    spool, over = Spool(open_database(tmp_path / "agent.sqlite"), "spool"), threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not over.is_set():
                spool.queued("overflow")
        except BaseException as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    queued = spool._queued["tracker"]
    for number in range(600_000):  # as `append_in` and `number_some` do, without the disk
        queued[f"1-{number % 40}-1"] = 1
        queued.pop(f"1-{(number + 20) % 40}-1", None)
    over.set()
    asking.join()
    assert failures == []
