"""Promises of the priority policy: reservations that nothing less urgent delays, quotas, and fairness among equals."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, SlotsReserved
from tenuto.schemas.events.request import (
    ExperimentMoved,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
)
from tenuto.services.scheduler.explain import explain
from tests.support.said import said
from tests.support.scheduler_driver import Driver, exited, held, joined, requested, settle_all, short, stopped, submitted

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


# Quotas


def quota(name: str, slots: int, owner: str = "workspace") -> ShareChanged:
    return ShareChanged.model_validate({"owner": owner, "name": name, "max_slots": slots})


def test_a_gang_kept_back_by_a_quota_preempts_its_owners_less_urgent_trials(driver: Driver) -> None:
    """Otherwise they would use the quota one after the other, and the gang would start behind the last one."""
    driver.feed(joined("a", 8), quota("default", 4), submitted(2, priority=60), *requested(2, *range(1, 20)))
    driver.feed(submitted(3, priority=70, workspace="other"), *requested(3, *range(1, 20)))
    assert held(driver) == {2: 4, 3: 4}
    decided = driver.feed(submitted(1, slots=3, priority=1), *requested(1, 1))
    assert short(decided) == ["!2-4-1", "!2-3-1", "!2-2-1"]
    text = next(said(data) for data in decided if isinstance(data, AllocationPreempted))
    assert text == (
        "Trial 1-1 of priority 1 needs 3 slots more of the 4 that workspace default may use; trial 2-4 of priority 60 counts "
        "there, too, and gives way with 1."
    )
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["-2-1-1"], "its slot and its part of the quota are kept"
    driver.feed(exited("2-2-1", "preempted"), exited("2-3-1", "preempted"))
    assert held(driver) == {1: 3, 2: 1, 3: 4}
    driver.feed(exited("2-4-1", "preempted"))
    assert held(driver) == {1: 3, 2: 1, 3: 4}


def test_nobody_gives_way_for_a_quota_to_a_gang_that_would_not_get_its_slots(driver: Driver) -> None:
    driver.feed(joined("a", 8), quota("ada", 4, "user"), submitted(2, priority=60), *requested(2, *range(1, 20)))
    driver.feed(submitted(3, slots=2, priority=1, user="bob", preemptible=False), *requested(3, 1, 2))
    assert short(driver.feed(submitted(1, slots=5, priority=1), *requested(1, 1))) == [], "more than the quota"
    driver.feed(quota("ada", 6, "user"))
    assert held(driver) == {2: 4, 3: 4}
    assert short(driver.feed(submitted(4, slots=6, priority=1), *requested(4, 1))) == [], "more than can be had"


@pytest.mark.parametrize("policy", ["fifo", "priority"])
def test_equals_do_not_use_the_quota_that_a_gang_ahead_of_them_waits_for(driver: Driver, policy: str) -> None:
    driver.feed(PoolPolicyChanged(pool="default", policy=policy), joined("a", 8), quota("ada", 4, "user"))  # type: ignore[arg-type]
    driver.feed(submitted(1), *requested(1, 1, 2), submitted(2, slots=4), *requested(2, 1))
    assert short(driver.feed(submitted(3), *requested(3, 1, 2))) == []
    row = next(row for row in explain(driver.state, "default", driver.now_us) if row.experiment_id == 3)
    assert (row.rule, row.text) == (
        "limit",
        "what is left of the quota of user ada is kept for experiment 2, which is ahead of it",
    )
    assert short(driver.feed(submitted(5, user="bob"), *requested(5, 1, 2))) == ["+5-1-1 a:2", "+5-2-1 a:3"]
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1"]
    assert short(driver.feed(stopped("1-2"), exited("1-2-1")))[:1] == ["-1-2-1"]
    assert held(driver) == {2: 4, 5: 2}


def test_less_urgent_trials_use_a_quota_that_a_gang_could_take_back(driver: Driver) -> None:
    driver.feed(joined("a", 8), quota("ada", 4, "user"))
    driver.feed(submitted(1, priority=5, slots=2, preemptible=False), *requested(1, 1))
    driver.feed(submitted(2, slots=4, priority=10), *requested(2, 1), submitted(3, priority=60), *requested(3, *range(1, 9)))
    assert held(driver) == {1: 2, 3: 2}
    assert short(driver.feed(submitted(4, priority=60, preemptible=False), *requested(4, 1))) == []
    decided = driver.feed(stopped("1-1"), exited("1-1-1"))
    assert short(decided) == ["!3-2-1", "!3-1-1", "-1-1-1"]
    settle_all(driver)
    assert held(driver) == {2: 4}


def test_slots_that_are_being_freed_for_an_owner_count_in_its_quota(driver: Driver) -> None:
    """Two trials do not preempt for the one slot that is left of it."""
    driver.feed(joined("a", 4), quota("ada", 1, "user"), submitted(1, user="bob", priority=60), *requested(1, 1, 2, 3, 4))
    driver.feed(submitted(2, priority=1))
    assert short(driver.feed(*requested(2, 1, 2))) == ["!1-4-1"]


# Victims


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=6),
    closed=st.sets(st.integers(0, 17), max_size=8),
    wanted=st.integers(1, 6),
)
@example(sizes=[2, 2, 2], closed={3, 5}, wanted=2)
def test_a_pass_takes_the_fewest_slots_also_where_some_are_closed(sizes: list[int], closed: set[int], wanted: int) -> None:
    """Against every set of running gangs. The one that is least to be lost may free only a part of its slots."""
    driver = Driver(checks=False)
    driver.feed(joined("a", sum(sizes)))
    for number, size in enumerate(sizes, 1):
        driver.feed(submitted(number, slots=size, priority=60), *requested(number, 1))
    driver.feed(*(SlotsClosed(agent_id="a", slot_id=slot, drain=True) for slot in sorted(closed) if slot < sum(sizes)))
    frees = {
        key: (item.size, sum(slot not in closed for _, slots in item.slots for slot in slots))
        for key, item in driver.state.allocations.items()
    }
    decided = driver.feed(submitted(99, slots=wanted, priority=10), *requested(99, 1))
    chosen = [data.allocation_id for data in decided if isinstance(data, AllocationPreempted)]
    every = [one for count in range(1, len(frees) + 1) for one in combinations(sorted(frees), count)]
    enough = [(sum(frees[key][0] for key in one), len(one)) for one in every if sum(frees[key][1] for key in one) >= wanted]
    assert ((sum(frees[key][0] for key in chosen), len(chosen)) == min(enough)) if enough else chosen == []


# Equals


def ends(driver: Driver, experiment: int) -> list[str]:
    """One of its running trials ends."""
    allocation = next(key for key in driver.state.experiments[experiment].allocations)
    return short(driver.feed(stopped(allocation.rsplit("-", 1)[0]), exited(allocation)))


def test_users_of_one_priority_hold_equally_many_slots_however_much_they_submit(driver: Driver) -> None:
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 30)), submitted(2, user="ada"), *requested(2, *range(1, 30)))
    driver.feed(submitted(3, user="bob"), *requested(3, *range(1, 30)), submitted(4, user="eve", slots=2), *requested(4, 1))
    driver.feed(joined("a", 9))
    assert held(driver) == {1: 4, 3: 3, 4: 2}  # the ninth slot is the earlier one's
    ends(driver, 4)
    assert held(driver) == {1: 5, 3: 4}
    assert ends(driver, 1)[-1].startswith("+1-"), "equally many: the earlier one's is next"
    driver.feed(submitted(5, user="new"))
    ends(driver, 3)
    assert held(driver) == {1: 5, 3: 4}
    driver.feed(*requested(5, 1, 2))
    assert ends(driver, 1)[-1].startswith("+5-1-1")


def test_weights_of_users_and_workspaces_count_among_equals(driver: Driver) -> None:
    driver.feed(ShareChanged(owner="user", name="ada", weight=2.0), ShareChanged(owner="workspace", name="w", weight=3.0))
    driver.feed(submitted(1, user="bob"), *requested(1, *range(1, 30)), submitted(2, user="ada"), *requested(2, *range(1, 30)))
    driver.feed(submitted(3, user="bob", workspace="w"), *requested(3, *range(1, 30)), joined("a", 12))
    assert held(driver) == {1: 2, 2: 4, 3: 6}


def test_slots_of_other_priorities_count_and_urgency_goes_first(driver: Driver) -> None:
    driver.feed(joined("a", 6), submitted(1, user="ada", priority=1), *requested(1, 1, 2))
    driver.feed(submitted(5, slots=4, user="x", priority=1), *requested(5, 1))
    driver.feed(submitted(2, user="ada"), *requested(2, *range(1, 9)), submitted(3, user="bob"), *requested(3, *range(1, 9)))
    ends(driver, 5)
    assert held(driver) == {1: 2, 2: 1, 3: 3}


def test_moves_order_a_users_own_experiments_and_those_who_hold_equally_much(driver: Driver) -> None:
    driver.feed(submitted(1, user="ada"), submitted(2, user="ada"), submitted(3, user="bob"))
    driver.feed(*requested(1, 1, 2), *requested(2, 1, 2), *requested(3, 1, 2), ExperimentMoved(experiment_id=2, place=0.5))
    driver.feed(joined("a", 1))
    assert held(driver) == {2: 1}
    driver.feed(ExperimentMoved(experiment_id=3, place=0.25))
    driver.feed(joined("b", 1), joined("c", 1), joined("d", 1))
    assert held(driver) == {2: 2, 3: 2}


def test_a_gang_that_waits_is_not_overtaken_by_those_who_hold_less(driver: Driver) -> None:
    """Bob's trials end one after the other, and he holds less than Ada each time: she would wait for ever, beside free slots."""
    driver.feed(
        joined("a", 9), submitted(1, user="ada"), *requested(1, 1), submitted(2, user="bob"), *requested(2, *range(1, 40))
    )
    assert held(driver) == {1: 1, 2: 8}
    driver.feed(submitted(3, user="ada", slots=8), *requested(3, 1))
    assert driver.state.experiments[3].reserved_us == 0, "nothing is free yet"
    for _ in range(20):
        if 3 in held(driver):
            break
        ends(driver, 2)
    assert held(driver) == {1: 1, 3: 8}
    reserved = [event.data for event in driver.log if isinstance(event.data, SlotsReserved)]
    assert [(data.trial_id, data.pool) for data in reserved] == [("3-1", "default")]
    driver.feed(stopped("3-1"), exited("3-1-1"))
    assert held(driver) == {1: 1, 2: 8}, "what was reserved is used up"


def test_a_gang_for_one_agent_is_not_overtaken_for_ever_either(driver: Driver) -> None:
    driver.feed(
        joined("a", 4), submitted(1, user="ada"), *requested(1, 1), submitted(2, user="bob"), *requested(2, *range(1, 40))
    )
    driver.feed(submitted(3, user="ada", slots=3, locality="agent"), *requested(3, 1))
    for _ in range(20):
        if 3 in held(driver):
            break
        ends(driver, 2)
    assert held(driver) == {1: 1, 3: 3}


def test_what_users_change_ends_a_reservation(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, user="ada", preemptible=False), *requested(1, 1), submitted(2, user="bob", slots=4))
    driver.feed(*requested(2, 1))
    assert driver.state.experiments[2].reserved_us
    assert driver.core.load(driver.core.dump(driver.state)) == driver.state
    for change in (
        ExperimentMoved(experiment_id=2, place=9.0),
        ExperimentPriorityChanged(experiment_id=2, priority=50),
        ExperimentPoolChanged(experiment_id=2, pool="other"),
    ):
        driver.record(change)
        driver.state = driver.core.evolve(driver.state, driver.log[-1])
        assert driver.state.experiments[2].reserved_us == 0
