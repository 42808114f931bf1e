"""Attempts, waits and parking of every receiver of events: one rule, in which an outage is no attempt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.reactions import OUTAGE_SECONDS_MAX, CannotPark, Failure, Reaction, ReceiverProgress, Retries

SECOND_US = 1_000_000
RETRIES = st.builds(
    Retries,
    first_seconds=st.floats(0.1, 10),
    max_seconds=st.floats(10, 1_000),
    attempts_max=st.none() | st.integers(1, 8),
    seconds_max=st.none() | st.floats(1, 10_000),
)
FAILED = Failure("HTTP 500")
OUTAGE = Failure("the database is away", "outage")


class Receiver:
    """Receiver that fails with the given errors first, and parks nothing while `full`."""

    def __init__(self, errors: Sequence[Exception], full: int = 0) -> None:
        self.errors, self.full = list(errors), full
        self.parked: list[str] = []
        self.now_us = 0
        self.calls = 0
        self.stop_after = 100

    def stopped(self) -> bool:
        return self.calls >= self.stop_after

    async def attempt(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def failure(self, error: Exception) -> Failure:
        if isinstance(error, KeyError):
            raise error
        return Failure(str(error), "outage" if isinstance(error, OSError) else "final" if "never" in str(error) else "attempt")

    async def park(self, progress: ReceiverProgress, failure: Failure) -> None:
        if self.full:
            self.full -= 1
            raise CannotPark("the parking is full")
        self.parked.append(failure.reason)

    async def wait(self, progress: ReceiverProgress, failure: Failure) -> None:
        assert progress.next_us is not None
        self.now_us = progress.next_us


def reaction(receiver: Receiver, attempts_max: int = 3) -> Reaction:
    return Reaction(Retries(1.0, 60.0, attempts_max), lambda: receiver.now_us)


@given(RETRIES, st.lists(st.booleans(), max_size=30), st.floats(0, 1))
def test_outages_take_neither_an_attempt_nor_time(retries: Retries, outages: list[bool], fraction: float) -> None:
    """The failures of a receiver have the same outcome with and without outages between them; only the hour differs."""
    without = with_outages = ReceiverProgress(position=7)
    now_us = later_us = 0
    for outage in outages:
        if outage:
            with_outages = retries.failed(with_outages, OUTAGE, later_us, fraction)
            assert not with_outages.parked
            assert with_outages.next_us is not None
            assert with_outages.next_us - later_us <= OUTAGE_SECONDS_MAX * SECOND_US
            later_us = with_outages.next_us
            continue
        without = retries.failed(without, FAILED, now_us, fraction)
        with_outages = retries.failed(with_outages, FAILED, later_us, fraction)
        assert (with_outages.attempts, with_outages.parked) == (without.attempts, without.parked)
        if without.parked:
            assert without.next_us is with_outages.next_us is None
            return
        assert without.next_us is not None
        assert with_outages.next_us is not None
        assert with_outages.next_us - later_us == without.next_us - now_us
        now_us, later_us = without.next_us, with_outages.next_us
    assert with_outages.attempts == outages.count(False)


@given(st.integers(0, 1_000), st.none() | st.floats(0, 1e6), st.floats(0, 1))
def test_waits_grow_keep_what_was_asked_for_and_have_a_bound(attempts: int, asked: float | None, fraction: float) -> None:
    retries = Retries(1.0, 3_600.0)

    def wait_us(attempts: int, asked: float | None) -> int:
        return retries.failed(ReceiverProgress(attempts=attempts), Failure("", asked_seconds=asked), 0, fraction).next_us or 0

    assert wait_us(attempts, asked) >= SECOND_US // 2
    assert wait_us(attempts, asked) >= int((asked or 0) * SECOND_US)
    assert wait_us(attempts, None) <= min(3_600 * SECOND_US, wait_us(attempts + 1, None))


async def test_an_event_is_parked_after_its_attempts_and_the_next_begins_anew() -> None:
    receiver = Receiver([ValueError("a"), OSError("away"), ValueError("b"), OSError("away"), OSError("away"), ValueError("c")])
    own = reaction(receiver)
    assert await own.settle(receiver, 5)
    assert (receiver.parked, receiver.calls, own.progress) == (["c"], 6, ReceiverProgress(5))
    assert await own.settle(receiver, 9)
    assert (receiver.calls, own.progress) == (7, ReceiverProgress(9))


async def test_a_final_failure_has_one_attempt() -> None:
    receiver = Receiver([ValueError("never")])
    assert await reaction(receiver).settle(receiver, 1)
    assert (receiver.parked, receiver.calls) == (["never"], 1)


async def test_an_event_that_cannot_be_parked_is_tried_until_it_can() -> None:
    receiver = Receiver([ValueError("never")] * 5, full=2)
    own = reaction(receiver)
    assert await own.settle(receiver, 1)
    assert (receiver.parked, receiver.calls, own.progress) == (["never"], 3, ReceiverProgress(1))


async def test_a_receiver_that_stops_keeps_its_position() -> None:
    receiver = Receiver([ValueError("a")] * 2)
    receiver.stop_after = 2
    own = reaction(receiver)
    assert not await own.settle(receiver, 5)
    assert (own.progress.position, own.progress.attempts, own.progress.problem) == (0, 2, "a")
    receiver.stop_after, receiver.errors = 9, [ValueError("b")] * 2
    assert await own.settle(receiver, 5), "another event's attempts are counted anew"
    assert receiver.parked == []


async def test_an_error_after_which_no_attempt_can_follow_is_raised() -> None:
    receiver = Receiver([KeyError("the loop has stopped")])
    with pytest.raises(KeyError):
        await reaction(receiver).settle(receiver, 1)


def test_a_position_never_goes_back() -> None:
    progress = ReceiverProgress(5, attempts=2)
    assert progress.passed(4) == progress
    assert progress.passed(6) == ReceiverProgress(6, attempts=2)
    assert progress.settled(4) == ReceiverProgress(5)
