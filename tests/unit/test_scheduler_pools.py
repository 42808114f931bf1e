"""Pools that lend each other slots: each test names one promise."""

from __future__ import annotations

import pytest

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, settle_all, stopped, submitted

SINGLE = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
SECOND = 1_000_000


def nothing_of_concern() -> ShareChanged:
    """An event after which all pools are planned."""
    return ShareChanged(owner="workspace", name="nobody", weight=1.0)


def granted(decided: list[EventData]) -> dict[str, str]:
    return {data.trial_id: data.pool for data in decided if isinstance(data, AllocationGranted)}


@pytest.mark.parametrize("home", ["default", "zebra"])
def test_a_guest_and_a_trial_that_grows_do_not_take_turns(home: str) -> None:
    """What the lender's own trial is about to grow into is not lent again, whatever the pools are called."""
    driver = Driver()
    driver.feed(fair("other"), joined("h", 2, pool=home), joined("b", 4, pool="other"))
    elastic = {"min": 1, "max": 4, "keep_seconds": 60}
    driver.feed(submitted(1, slots=elastic, pool="other", searcher=SINGLE, user="o"), submitted(9, slots=2, pool="other"))
    driver.feed(*requested(9, 1), *requested(1, 1))
    driver.feed(submitted(2, slots=2, pool=home, fallback_pools=["other"], priority=10, user="g"), *requested(2, 1, 2))
    driver.feed(stopped("9-1"), exited("9-1-1"))
    assert held(driver) == {1: 2, 2: 4}
    driver.time_passes(100 * SECOND)
    driver.feed(nothing_of_concern())
    settle_all(driver)
    for _ in range(10):
        for item in [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving]:
            driver.feed(exited(item, "preempted"))
    assert held(driver) == {1: 4, 2: 2}
    assert len([event for event in driver.log if event.type == "AllocationPreempted"]) == 1


@pytest.mark.parametrize("share_is_set", [False, True])
def test_what_a_pools_own_trials_leave_over_is_lent_at_once(share_is_set: bool) -> None:
    driver = Driver()
    driver.feed(joined("h", 2), joined("b", 8, pool="other"), PoolPolicyChanged(pool="other", policy="fifo"))
    if share_is_set:
        driver.feed(ShareChanged(owner="user", name="somebody", weight=2.0))
    driver.feed(submitted(5, slots=5, pool="other"), *requested(5, 1, 2))
    driver.feed(submitted(3, slots=3, fallback_pools=["other"]), *requested(3, 1))
    decided = driver.feed(stopped("5-1"), exited("5-1-1"))
    assert granted(decided) == {"5-2": "other", "3-1": "other"}


@pytest.mark.parametrize("why", ["limit", "size"])
def test_a_pool_lends_what_its_own_trials_cannot_use(why: str) -> None:
    """One that waits for a limit, or for more slots than there are, does not keep a whole pool idle."""
    driver = Driver()
    driver.feed(joined("h", 1), joined("b", 8, pool="other"))
    if why == "limit":
        driver.feed(submitted(5, slots=1, max_slots=1, pool="other"), *requested(5, 1, 2))
    else:
        driver.feed(submitted(5, slots=9, pool="other"), *requested(5, 1))
    assert granted(driver.feed(submitted(3, slots=3, fallback_pools=["other"]), *requested(3, 1))) == {"3-1": "other"}
    driver.core.check(driver.state)


def test_a_trial_that_waits_in_the_lender_is_served_before_guests() -> None:
    driver = Driver()
    driver.feed(joined("h", 1), joined("b", 4, pool="other"))
    driver.feed(submitted(5, slots=3, pool="other"), *requested(5, 1, 2))
    assert granted(driver.feed(submitted(3, slots=2, fallback_pools=["other"]), *requested(3, 1))) == {}
    driver.core.check(driver.state)


def test_an_elastic_trial_starts_within_its_owners_quota_of_all_pools() -> None:
    driver = Driver()
    driver.feed(fair(), joined("a", 8), joined("b", 8, pool="other"), ShareChanged(owner="user", name="ada", max_slots=4))
    driver.feed(submitted(1, slots=3, pool="other", user="ada"), *requested(1, 1))
    driver.feed(submitted(2, slots={"min": 1, "max": 8}, user="ada", searcher=SINGLE), *requested(2, 1))
    assert held(driver) == {1: 3, 2: 1}


def test_a_gang_that_can_never_start_takes_nothing_from_one_that_waits() -> None:
    """It would let an elastic trial grow into what the waiting gang is gathering."""
    driver = Driver()
    driver.feed(joined("a", 8), submitted(9, slots=3), submitted(2, slots=4), *requested(9, 1), *requested(2, 1))
    driver.feed(submitted(1, slots={"min": 1, "max": 8, "keep_seconds": 0}, priority=5, searcher=SINGLE), *requested(1, 1))
    driver.feed(submitted(3, slots=7), *requested(3, 1), submitted(4, slots=100, priority=60), *requested(4, 1))
    driver.feed(stopped("9-1"), exited("9-1-1"))
    driver.feed(stopped("2-1"), exited("2-1-1"))
    assert held(driver) == {1: 1, 3: 7}


def test_of_pools_that_lend_each_other_none_lends_what_its_own_trial_grows_into() -> None:
    driver = Driver()
    driver.feed(fair(), joined("a", 1), joined("b", 2), submitted(3, slots=4, fallback_pools=["other"]), *requested(3, 1))
    elastic = {"min": 1, "max": 4, "keep_seconds": 0}
    driver.feed(
        submitted(6, slots=elastic, pool="other", fallback_pools=["default"], searcher=SINGLE, user="g"), *requested(6, 1)
    )
    driver.feed(submitted(7, slots=elastic, searcher=SINGLE, user="h"), *requested(7, 1))
    for _ in range(20):
        leaving = [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving]
        for item in leaving:
            driver.feed(exited(item, "preempted"))
    assert not leaving, "slots go to and fro"
    assert held(driver) == {7: 3}


def test_a_pool_borrows_what_its_lender_leaves_over_in_the_same_event_though_they_lend_each_other() -> None:
    driver = Driver()
    driver.feed(joined("a", 4), submitted(1, slots=2, fallback_pools=["other"], locality="agent"), *requested(1, 1, 2, 3))
    driver.feed(submitted(5, slots=1, pool="other", fallback_pools=["default"]), *requested(5, 1, 2))
    assert held(driver) == {1: 4}
    driver.feed(stopped("1-1"), exited("1-1-1"))
    assert held(driver) == {1: 4}
    assert granted(driver.feed(stopped("1-2"), exited("1-2-1"))) == {"5-1": "default", "5-2": "default"}
