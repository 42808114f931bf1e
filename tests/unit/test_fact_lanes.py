"""The second lane of facts: who goes by it, and how much of the loop's time it is given."""

from __future__ import annotations

import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.commit_sizes import (
    COMMIT_REPORTS_MAX,
    IDLE_SECONDS,
    YIELDING_GROWTH,
    YIELDING_REPORTS_MAX,
    YIELDING_REPORTS_MIN,
    YIELDING_SECONDS,
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


def committed(sizes: CommitSizes, seconds_of_one: float, now: float) -> float:
    """Commits as many reports as it may; returns the time after that."""
    reports = sizes.most(now)
    seconds = 0.005 + reports * seconds_of_one
    sizes.committed(reports, seconds, now + seconds)
    return now + seconds


def test_the_second_lane_takes_short_turns_while_the_first_is_used() -> None:
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    assert first.most(0.0) == COMMIT_REPORTS_MAX
    assert second.most(0.0) == YIELDING_REPORTS_MAX
    now = 0.0
    for _ in range(50):
        first.committed(1, 0.005, now)
        now = committed(second, 0.0005, now)
    assert 0.005 + second.most(now) * 0.0005 <= YIELDING_SECONDS + 2 * 0.0005
    assert second.most(now) > YIELDING_REPORTS_MIN
    assert second.most(now + IDLE_SECONDS + 1) == YIELDING_REPORTS_MAX
    assert first.most(now) == COMMIT_REPORTS_MAX


def test_the_second_lane_is_not_starved_where_the_first_has_much_to_do() -> None:
    """After an outage all trials have facts waiting: both lanes get the same time."""
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    now = 0.0
    for _ in range(200):
        first.committed(COMMIT_REPORTS_MAX, 0.08, now)
        now = committed(second, 0.0005, now)
    assert second.most(now) == YIELDING_REPORTS_MAX


def test_a_dear_commit_does_not_keep_the_second_lane_small() -> None:
    """A database far away: a commit takes 20 ms before its first report. One of the first lane waits for the second's half the
    time, so both grow until the second has about twice the time of a commit."""
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    now, second_seconds = 0.0, 0.0
    for number in range(400):
        if number % 20 == 0:
            first.committed(1, 0.02 + second_seconds / 2, now)
        reports = second.most(now)
        second_seconds = 0.02 + reports * 0.0004
        now += second_seconds
        second.committed(reports, second_seconds, now)
    assert second.most(now) >= YIELDING_REPORTS_MAX - YIELDING_GROWTH


def test_the_second_lane_goes_on_where_every_commit_is_slow() -> None:
    first = CommitSizes()
    second = CommitSizes(yields_to=first)
    first.committed(1, 0.005, 0.0)
    for number in range(20):
        second.committed(second.most(float(number)), 5.0, float(number))
    assert second.most(1.0) == YIELDING_REPORTS_MIN


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
