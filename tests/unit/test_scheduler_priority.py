"""Promises of the priority policy: reservations that nothing less urgent delays, quotas, and fairness among equals."""

from __future__ import annotations

import pytest

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import PoolPolicyChanged
from tenuto.services.scheduler.explain import explain
from tests.support.scheduler_driver import Driver, exited, held, joined, requested, short, stopped, submitted

SECOND_US = 1_000_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def expected_us(driver: Driver, experiment: int) -> int | None:
    return next(row.expected_us for row in explain(driver.state, "default", driver.now_us) if row.experiment_id == experiment)


# Reservations and backfill


def test_a_less_urgent_held_gang_does_not_replace_the_promise_of_a_more_urgent_one(driver: Driver) -> None:
    driver.feed(joined("a", 8), submitted(1, slots=4, priority=5, preemptible=False, expected=50.0), *requested(1, 1))
    driver.feed(submitted(2, slots=2, priority=5, preemptible=False, expected=100.0), *requested(2, 1))
    driver.feed(submitted(3, slots=8, priority=10), *requested(3, 1))
    promised = expected_us(driver, 3)
    driver.feed(submitted(4, slots=3, priority=20), *requested(4, 1))
    assert short(driver.feed(submitted(5, slots=2, priority=20, preemptible=False), *requested(5, 1))) == []
    assert short(driver.feed(submitted(6, slots=2, priority=30, preemptible=False), *requested(6, 1))) == []
    assert expected_us(driver, 3) == promised
    driver.feed(stopped("1-1"), exited("1-1-1"))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["!4-1-1", "-2-1-1"]  # it ran meanwhile, and gives way


def test_what_may_not_be_preempted_starts_behind_two_held_gangs_if_it_delays_neither(driver: Driver) -> None:
    driver.feed(joined("a", 8), submitted(1, slots=4, priority=5, preemptible=False, expected=50.0), *requested(1, 1))
    driver.feed(submitted(2, slots=2, priority=5, preemptible=False, expected=100.0), *requested(2, 1))
    driver.feed(submitted(3, slots=7, priority=10), *requested(3, 1), submitted(4, slots=3, priority=20), *requested(4, 1))
    # The first gang leaves one slot over; the second one starts after 50 s and leaves three.
    [grant] = driver.feed(submitted(5, priority=30, preemptible=False), *requested(5, 1))
    assert isinstance(grant, AllocationGranted)
    assert grant.backfill_until_us is None
    assert short(driver.feed(submitted(6, priority=30, preemptible=False), *requested(6, 1))) == []
    [grant] = driver.feed(submitted(7, priority=30, preemptible=False, expected=40.0), *requested(7, 1))
    assert isinstance(grant, AllocationGranted)
    assert grant.backfill_until_us == driver.state.allocations["1-1-1"].granted_us + 50 * SECOND_US


def test_slots_that_a_held_gang_can_take_back_are_a_part_of_its_promise(driver: Driver) -> None:
    """A less urgent trial on its slots changes nothing: neither its start, nor what may start beside it."""
    driver.feed(joined("a", 8), submitted(1, slots=4, priority=5, preemptible=False, expected=50.0), *requested(1, 1))
    driver.feed(submitted(3, slots=7, priority=10), *requested(3, 1))
    promised = expected_us(driver, 3)
    assert promised == driver.state.allocations["1-1-1"].granted_us + 50 * SECOND_US
    driver.feed(submitted(4, slots=3, priority=60), *requested(4, 1))
    assert held(driver) == {1: 4, 4: 3}
    assert expected_us(driver, 3) == promised
    assert short(driver.feed(submitted(5, priority=30, preemptible=False), *requested(5, 1))) == ["+5-1-1 a:7"]


@pytest.mark.parametrize("policy", ["fifo", "priority", "fair_share"])
def test_what_starts_in_the_same_pass_counts_for_the_promise(driver: Driver, policy: str) -> None:
    """Small trials need not wait for the next event."""
    driver.feed(PoolPolicyChanged(pool="default", policy=policy), joined("a", 6))  # type: ignore[arg-type]
    driver.feed(submitted(1, slots=6, expected=50.0, preemptible=False), *requested(1, 1))
    driver.feed(submitted(4, slots=3, expected=100.0, user="x"), *requested(4, 1))
    driver.feed(submitted(5, slots=4, expected=100.0, user="x"), *requested(5, 1))
    driver.feed(submitted(6, expected=20.0, user="x"), *requested(6, 1, 2, 3))
    started = short(driver.feed(stopped("1-1"), exited("1-1-1")))
    if policy != "fair_share":  # where the order is another one; what holds for all is that nothing is left undone
        assert [item[:6] for item in started] == ["-1-1-1", "+4-1-1", "+6-1-1", "+6-2-1", "+6-3-1"]
    assert short(driver.feed(submitted(7, slots=6, user="y", priority=99), *requested(7, 1))) == []
