"""Table tests of victims, FIFO, reservations, constraints and live changes: each names one promise."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted
from tenuto.schemas.events.request import (
    ExperimentMoved,
    ExperimentPoolChanged,
    ExperimentPriorityChanged,
    PoolPolicyChanged,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.policies.victims import Candidate, cheapest, cost_of
from tenuto.services.scheduler.state import Allocation
from tests.support.scheduler_driver import Driver, exited, held, joined, requested, settle_all, short, stopped, submitted


@pytest.fixture
def driver() -> Driver:
    return Driver()


def fifo() -> PoolPolicyChanged:
    return PoolPolicyChanged(pool="default", policy="fifo")


# Victims


@st.composite
def victims(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for at in range(draw(st.integers(0, 9))):
        size = draw(st.integers(1, 5))
        allocation = Allocation(
            f"1-{at}-1", 1, at, "default", (("a", tuple(range(size))),), at, since_us=draw(st.integers(0, 50))
        )
        found.append(Candidate(allocation, draw(st.integers(1, size)), draw(st.integers(0, 3))))
    return found


@settings(max_examples=300, deadline=None)
@given(candidates=victims(), missing=st.integers(1, 14))
def test_victims_are_the_cheapest_that_suffice(candidates: list[Candidate], missing: int) -> None:
    """Against every possible set."""
    chosen = cheapest(candidates, missing, 100)

    def cost(of: tuple[Candidate, ...] | list[Candidate]) -> tuple[int, ...]:
        return tuple(sum(column) for column in zip(*(cost_of(item, 100) for item in of), strict=True))

    every = [one for count in range(1, len(candidates) + 1) for one in combinations(candidates, count)]
    enough = [one for one in every if sum(item.freed for item in one) >= missing]
    assert (cost(chosen) == min(map(cost, enough))) if enough else chosen == []
    for victim in chosen:
        assert sum(item.freed for item in chosen) - victim.freed < missing


def test_one_victim_where_one_suffices(driver: Driver) -> None:
    """Not three small ones for a gang of two, and not a large one where a small one does."""
    driver.feed(joined("a", 8), submitted(1, priority=60, slots=4), submitted(2, priority=60, slots=2), submitted(3, priority=60))
    driver.feed(*requested(1, 1), *requested(2, 1), *requested(3, 1, 2), submitted(4, priority=10, slots=2))
    assert short(driver.feed(*requested(4, 1))) == ["!2-1-1"]


def test_the_victim_has_the_least_work_since_its_checkpoint(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1, priority=60), *requested(1, 1, 2))
    driver.feed(
        CheckpointSaved(
            trial_id="1-1", allocation_id="1-1-1", checkpoint_id="c", batches=1, length=1, files=(), size_bytes=0, location="x"
        )
    )
    driver.feed(submitted(2, priority=10))
    assert short(driver.feed(*requested(2, 1))) == ["!1-1-1"]


def test_what_may_not_be_preempted_is_not(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1, priority=60, preemptible=False), *requested(1, 1), submitted(2, priority=1))
    assert short(driver.feed(*requested(2, 1))) == []


# FIFO, reservations and backfill


def test_fifo_serves_in_order_and_preempts_nobody(driver: Driver) -> None:
    driver.feed(fifo(), joined("a", 2), submitted(1, priority=90), submitted(2, priority=1), submitted(3, slots=2), submitted(4))
    driver.feed(*requested(2, 1), *requested(3, 1), *requested(1, 1), *requested(4, 1))
    assert held(driver) == {1: 1, 2: 1}
    assert short(driver.feed(exited("1-1-1"), stopped("1-1"))) == ["-1-1-1", "+1-1-2 a:1"]
    assert short(driver.feed(stopped("1-1"), exited("1-1-2"))) == ["-1-1-2"]  # kept for the gang of two
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["-2-1-1", "+3-1-1 a:0,1"]


@pytest.mark.parametrize("policy", ["fifo", "priority"])
def test_small_trials_start_ahead_of_a_large_gang_only_if_they_do_not_delay_it(driver: Driver, policy: str) -> None:
    driver.feed(PoolPolicyChanged(pool="default", policy=policy), joined("a", 4))  # type: ignore[arg-type]
    driver.feed(submitted(1, slots=3, expected=100.0), *requested(1, 1), submitted(2, slots=4), *requested(2, 1))
    driver.feed(submitted(3, expected=200.0), *requested(3, 1), submitted(4), *requested(4, 1))
    assert held(driver) == {1: 3}  # both would delay it, as far as anybody knows
    [grant] = driver.feed(submitted(5, expected=50.0), *requested(5, 1))
    assert isinstance(grant, AllocationGranted)
    assert grant.reason.rule == f"{policy}.backfills"
    assert grant.backfill_until_us == driver.state.allocations["1-1-1"].granted_us + 100_000_000
    driver.time_passes(150_000_000)
    # It runs longer than it said: when the gang's other slots are free, it gives way.
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["!5-1-1", "-1-1-1"]
    assert short(driver.feed(exited("5-1-1", "preempted"))) == ["-5-1-1", "+2-1-1 a:0,1,2,3"]


def test_what_the_gang_leaves_over_may_be_used_for_long(driver: Driver) -> None:
    driver.feed(fifo(), joined("a", 4), submitted(1, slots=2, expected=100.0), *requested(1, 1))
    driver.feed(submitted(2, slots=3), *requested(2, 1), submitted(3), *requested(3, 1, 2))
    assert held(driver) == {1: 2, 3: 1}


# Constraints


def test_ten_slots_fit_on_nodes_of_four_and_six(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 6), submitted(1, slots=10))
    assert short(driver.feed(*requested(1, 1))) == ["+1-1-1 b:0,1,2,3,4,5 a:0,1,2,3"]


def test_a_gang_on_one_agent_waits_for_one_and_holds_only_that(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 4), submitted(1), *requested(1, *range(1, 9)))
    driver.feed(submitted(2, slots=3, locality="agent"), *requested(2, 1), submitted(3), *requested(3, 1, 2, 3))
    for trial in ("1-1", "1-5", "1-2"):
        driver.feed(stopped(trial), exited(f"{trial}-1"))
    assert held(driver) == {1: 5, 3: 2}, "one of the slots of `a` and `b` is kept"
    grants = driver.feed(stopped("1-6"), exited("1-6-1"), stopped("1-7"), exited("1-7-1"), stopped("1-3"), exited("1-3-1"))
    found = [data for data in grants if isinstance(data, AllocationGranted) and data.experiment_id == 2]
    assert [len(data.slots) for data in found] == [1] or held(driver).get(3) == 3


def test_racks_labels_devices_and_excluded_agents(driver: Driver) -> None:
    driver.feed(
        joined("a", 2, labels=("rack=1", "tier=hot")), joined("b", 2, labels=("rack=2",)), joined("c", 2, labels=("rack=2",))
    )
    assert short(driver.feed(submitted(1, slots=3, locality="rack"), *requested(1, 1))) == ["+1-1-1 b:0,1 c:0"]
    assert short(driver.feed(submitted(2, agent_labels=["tier=hot"]), *requested(2, 1))) == ["+2-1-1 a:0"]
    assert short(driver.feed(submitted(3, exclude_agents=["c"]), *requested(3, 1))) == ["+3-1-1 a:1"]
    assert short(driver.feed(submitted(4, device="A100"), *requested(4, 1))) == []
    assert short(driver.feed(joined("d", 1, device="NVIDIA A100 80GB"))) == ["+4-1-1 d:0"]


def test_spread_is_even(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 4), joined("c", 1), submitted(1, slots=5, placement="spread"))
    [grant] = driver.feed(*requested(1, 1))
    assert isinstance(grant, AllocationGranted)
    assert sorted(len(part.slot_ids) for part in grant.slots) == [1, 2, 2]


def test_preemption_on_one_agent_takes_only_what_is_there(driver: Driver) -> None:
    driver.feed(joined("a", 2), joined("b", 2), submitted(1, priority=60), *requested(1, 1, 2, 3, 4))
    driver.feed(submitted(2, priority=10, slots=2, locality="agent"))
    decided = driver.feed(*requested(2, 1))
    agents = {
        driver.state.allocations[data.allocation_id].slots[0][0] for data in decided if isinstance(data, AllocationPreempted)
    }
    assert (len(decided), len(agents)) == (2, 1)
    settle_all(driver)
    assert held(driver) == {1: 2, 2: 2}


def test_another_pool_lends_what_nobody_there_wants(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("x", 1, pool="spare"), submitted(1, fallback_pools=["spare"]))
    assert short(driver.feed(*requested(1, 1, 2))) == ["+1-1-1 a:0", "+1-2-1 x:0"]
    driver.feed(submitted(2, fallback_pools=["spare"]), *requested(2, 1))
    assert short(driver.feed(stopped("1-2"), exited("1-2-1"))) == ["-1-2-1", "+2-1-1 x:0"]


# Live changes


def test_quotas_bound_workspaces_and_users_in_all_pools(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("x", 4, pool="other"), ShareChanged(owner="user", name="ada", max_slots=3))
    driver.feed(submitted(1), submitted(2, pool="other"), *requested(1, 1, 2), *requested(2, 1, 2))
    assert held(driver) == {1: 2, 2: 1}
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1", "+2-2-1 x:1"]
    assert short(driver.feed(*requested(1, 3), ShareChanged(owner="user", name="ada"))) == ["+1-3-1 a:0"]


def test_moves_and_pool_changes(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1), submitted(2), submitted(3), *requested(2, 1), *requested(3, 1))
    driver.feed(ExperimentMoved(experiment_id=3, place=1.5))
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1", "+3-1-1 a:0"]
    assert short(driver.feed(joined("x", 2, pool="other"), ExperimentPoolChanged(experiment_id=3, pool="other"))) == ["!3-1-1"]
    assert short(driver.feed(exited("3-1-1", "preempted"))) == ["-3-1-1", "+2-1-1 a:0", "+3-1-2 x:0"]
    driver.feed(ExperimentPriorityChanged(experiment_id=3, priority=1))
    driver.core.check(driver.state)


def test_closed_agents_are_left_and_stay_closed(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1), *requested(1, 1, 2, 3))
    assert short(driver.feed(SlotsClosed(agent_id="a", slot_id=0, drain=True))) == []
    assert short(driver.feed(SlotsClosed(agent_id="a"))) == ["!1-1-1", "!1-2-1"]
    assert short(driver.feed(exited("1-1-1", "preempted"), exited("1-2-1", "preempted"), joined("a", 2))) == ["-1-1-1", "-1-2-1"]
    assert short(driver.feed(SlotsOpened(agent_id="a"))) == ["+1-1-2 a:0", "+1-2-2 a:1"]
    assert driver.core.load(driver.core.dump(driver.state)) == driver.state
