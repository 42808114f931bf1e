"""Elastic trials: what they start with, when they grow and shrink, and whose slots are kept for whom. Each names one promise."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.pool import AllocationResized
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentPauseRequested,
    ExperimentSlotLimitChanged,
    PoolPolicyChanged,
    ShareChanged,
)
from tenuto.schemas.events.search import ExperimentCompleted
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.policies.shares import ShareNode, divide
from tests.support.scheduler_driver import WHY, Driver, exited, joined, requested, short, stopped, submitted
from tests.support.whole_gangs import whole_gangs

KEEP_US = 60_000_000
WIDE = {"min": 1, "max": 64}


@pytest.fixture
def driver() -> Driver:
    return Driver()


def fair() -> PoolPolicyChanged:
    return PoolPolicyChanged(pool="default", policy="fair_share")


def one(trials: int = 1) -> dict[str, object]:
    """A search that runs so many trials at once."""
    if trials == 1:
        return {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    rest = {"max_trials": trials, "max_concurrent_trials": trials}
    return {"name": "random", "metric": "loss", "max_length": {"batches": 100}, **rest}


def saved(driver: Driver, item: str) -> CheckpointSaved:
    fact = {"checkpoint_id": "c", "batches": 1, "length": 1, "files": (), "size_bytes": 0, "location": "x"}
    return CheckpointSaved.model_validate({"trial_id": item.rsplit("-", 1)[0], "allocation_id": item, **fact})


def settle(driver: Driver) -> None:
    """Lets preempted trials leave and growing trials save their checkpoints, until nothing changes any more."""
    for _ in range(200):
        leaving = [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving]
        if leaving:
            driver.feed(*(exited(key, "preempted") for key in leaving))
            continue
        driver.time_passes(KEEP_US)
        decided = [driver.feed(saved(driver, item)) for item in sorted(driver.state.allocations)]
        if not any(decided):
            return
    raise AssertionError("sizes change to and fro")


def sizes(driver: Driver) -> dict[str, int]:
    """Trial -> slots."""
    return {key.rsplit("-", 1)[0]: driver.state.allocations[key].size for key in sorted(driver.state.allocations)}


def held(driver: Driver) -> dict[int, int]:
    slots: Counter[int] = Counter()
    for key in sorted(driver.state.allocations):
        slots[driver.state.allocations[key].experiment_id] += driver.state.allocations[key].size
    return dict(slots)


def end(driver: Driver, experiment: int) -> None:
    own = list(driver.state.experiments[experiment].allocations)
    driver.feed(*(stopped(f"{experiment}-{number}") for number in sorted(driver.state.experiments[experiment].trials)))
    driver.feed(*(exited(item) for item in own))
    driver.feed(ExperimentCompleted(experiment_id=experiment, best_trial_id=None, best_metric=None, trials=1, reason=WHY))


def judged(driver: Driver) -> None:
    driver.core.check(driver.state)
    assert verify_decisions(driver.core, driver.log).ok
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)


# The story of 64 slots


@pytest.mark.parametrize("trials", [1, 4, 40])
def test_elastic_searches_share_64_slots_as_they_come_and_go(trials: int) -> None:
    """64 slots: two searches have 32 each; a third joins: 22, 21, 21; one ends: 32 each; one is left: 64."""
    driver = Driver(checks=trials == 1)
    driver.feed(fair(), *(joined(f"node-{n}", 8) for n in range(8)))
    for experiment in (1, 2):
        driver.feed(submitted(experiment, slots_per_trial=WIDE, searcher=one(trials)))
        driver.feed(*requested(experiment, *range(1, trials + 1)))
    settle(driver)
    assert held(driver) == {1: 32, 2: 32}
    driver.feed(submitted(3, slots_per_trial=WIDE, searcher=one(trials)), *requested(3, *range(1, trials + 1)))
    settle(driver)
    assert held(driver) == {1: 22, 2: 21, 3: 21}
    end(driver, 1)
    settle(driver)
    assert held(driver) == {2: 32, 3: 32}
    end(driver, 3)
    settle(driver)
    assert held(driver) == {2: 64}
    running = sizes(driver).values()
    assert len(running) == trials
    assert max(running) - min(running) <= 1 if trials < 40 else max(running) <= 3
    judged(driver)


def test_elastic_and_rigid_searches_share_64_slots() -> None:
    driver = Driver(checks=False)
    driver.feed(fair(), *(joined(f"node-{n}", 8) for n in range(8)))
    driver.feed(submitted(1, slots_per_trial=WIDE, searcher=one()), *requested(1, 1))
    assert held(driver) == {1: 64}
    driver.feed(submitted(2), *requested(2, *range(1, 101)))
    settle(driver)
    assert held(driver) == {1: 32, 2: 32}
    driver.feed(submitted(3, slots=2), *requested(3, *range(1, 51)))
    settle(driver)
    assert held(driver) == {1: 21, 2: 21, 3: 22}  # its last gang: one slot that shrinks, one that is preempted
    end(driver, 3)
    settle(driver)
    assert held(driver) == {1: 32, 2: 32}
    end(driver, 2)
    settle(driver)
    assert held(driver) == {1: 64}
    judged(driver)


# Growing


def test_a_lone_trial_starts_with_all_it_can_use(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 4), submitted(1, slots_per_trial={"min": 2, "max": 6}, searcher=one()))
    assert short(driver.feed(*requested(1, 1))) == ["+1-1-1 a:0,1,2,3 b:0,1"]


def test_the_first_trial_of_a_search_leaves_room_for_the_others(driver: Driver) -> None:
    driver.feed(joined("a", 8), submitted(1, slots_per_trial={"min": 1, "max": 8}, searcher=one(4)))
    driver.feed(*requested(1, 1, 2, 3, 4))
    assert sizes(driver) == {"1-1": 2, "1-2": 2, "1-3": 2, "1-4": 2}


def test_it_grows_at_a_checkpoint_after_it_kept_its_size_for_a_while(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(2), *requested(2, 1))
    driver.feed(submitted(1, slots_per_trial={"min": 1, "max": 2, "keep_seconds": 5}, searcher=one()), *requested(1, 1))
    driver.feed(stopped("2-1"))
    assert short(driver.feed(exited("2-1-1"))) == ["-2-1-1"], "it got its size just now"
    driver.time_passes(4_000_000)
    assert driver.feed(saved(driver, "1-1-1")) == []
    driver.time_passes(1_000_000)
    grown = driver.feed(saved(driver, "1-1-1"))
    assert [data.TYPE for data in grown] == ["AllocationResized"]
    assert isinstance(grown[0], AllocationResized)
    assert (grown[0].reason.numbers["slots_from"], grown[0].reason.numbers["slots_to"]) == (1, 2)
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1", "+1-1-2 a:0,1"]


def test_what_a_growing_trial_waits_for_is_nobody_elses(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1, slots_per_trial={"min": 1, "max": 2}, max_slots=1, searcher=one()), *requested(1, 1))
    driver.time_passes(KEEP_US)
    grown = driver.feed(ExperimentSlotLimitChanged(experiment_id=1, max_slots=None))
    assert [data.TYPE for data in grown] == ["AllocationResized"]
    assert driver.feed(submitted(2), *requested(2, 1)) == []
    assert short(driver.feed(exited("1-1-1", "preempted"))[:2]) == ["-1-1-1", "+1-1-2 a:0,1"]


def test_nothing_grows_into_slots_that_a_waiting_gang_needs(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, slots_per_trial={"min": 1, "max": 4}, max_slots=1, searcher=one()), *requested(1, 1))
    driver.feed(submitted(2, preemptible=False), *requested(2, 1), submitted(3, slots=3), *requested(3, 1))
    driver.time_passes(KEEP_US)
    assert driver.feed(ExperimentSlotLimitChanged(experiment_id=1, max_slots=None)) == []
    assert driver.feed(saved(driver, "1-1-1")) == []


def test_it_grows_where_its_constraints_allow(driver: Driver) -> None:
    driver.feed(joined("a", 2), joined("b", 4), submitted(9), *requested(9, 1, 2, 3, 4, 5))
    driver.feed(submitted(1, slots_per_trial={"min": 1, "max": 4}, locality="agent", searcher=one()), *requested(1, 1))
    agent = driver.state.allocations["1-1-1"].slots[0][0]
    end(driver, 9)
    settle(driver)
    [(where, slots)] = driver.state.allocations["1-1-2"].slots
    assert (where, len(slots)) == (agent, {"a": 2, "b": 4}[agent])


def test_quotas_bound_growth(driver: Driver) -> None:
    driver.feed(joined("a", 8), ShareChanged(owner="user", name="ada", weight=1.0, max_slots=3))
    driver.feed(submitted(1, slots_per_trial={"min": 1, "max": 8}, searcher=one()), *requested(1, 1))
    settle(driver)
    assert held(driver) == {1: 3}


# Shrinking


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_a_waiting_gang_gets_what_an_elastic_trial_has_above_its_least(driver: Driver, policy: str) -> None:
    driver.feed(PoolPolicyChanged.model_validate({"pool": "default", "policy": policy}), joined("a", 4), joined("b", 4))
    driver.feed(submitted(1, slots_per_trial={"min": 2, "max": 8}, searcher=one()), *requested(1, 1))
    assert sizes(driver) == {"1-1": 8}
    decided = driver.feed(submitted(2, slots=3), *requested(2, 1))
    assert [data.TYPE for data in decided] == ["AllocationResized"], "nobody is preempted"
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1", "+1-1-2 a:0 b:0,1,2,3", "+2-1-1 a:1,2,3"]
    judged(driver)


def test_it_never_shrinks_below_its_least(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, slots_per_trial={"min": 3, "max": 4}, searcher=one()), *requested(1, 1))
    driver.feed(submitted(2, slots=2), *requested(2, 1))
    assert (sizes(driver), driver.state.allocations["1-1-1"].leaving) == ({"1-1": 4}, "")


def test_a_less_urgent_gang_does_not_shrink_a_more_urgent_one(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, priority=10, slots_per_trial={"min": 1, "max": 4}, searcher=one()), *requested(1, 1))
    assert driver.feed(submitted(2), *requested(2, 1)) == []


def test_an_elastic_trial_shrinks_before_others_are_preempted(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, priority=60), *requested(1, 1, 2))
    driver.feed(submitted(2, priority=60, slots_per_trial={"min": 1, "max": 2}, searcher=one()), *requested(2, 1))
    decided = driver.feed(submitted(3, priority=10), *requested(3, 1))
    assert [(data.TYPE, getattr(data, "trial_id", "")) for data in decided] == [("AllocationResized", "2-1")]


def test_one_that_is_leaving_to_shrink_shrinks_further_for_nothing(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, slots_per_trial={"min": 1, "max": 4}, searcher=one()), *requested(1, 1))
    driver.feed(submitted(2), *requested(2, 1, 2))
    assert driver.state.allocations["1-1-1"].size_soon == 2
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1", "+1-1-2 a:0,1", "+2-1-1 a:2", "+2-2-1 a:3"]


def test_a_searchs_own_waiting_trials_get_slots_of_its_larger_ones(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, slots_per_trial={"min": 1, "max": 4}, max_slots=4), *requested(1, 1))
    settle(driver)
    assert sizes(driver) == {"1-1": 4}
    driver.feed(*requested(1, 2, 3))
    settle(driver)
    assert sorted(sizes(driver).values()) == [1, 1, 2]


def test_a_lower_limit_shrinks_before_it_preempts(driver: Driver) -> None:
    driver.feed(joined("a", 8), submitted(1, slots_per_trial={"min": 2, "max": 4}, searcher=one(2)), *requested(1, 1, 2))
    assert sizes(driver) == {"1-1": 4, "1-2": 4}
    decided = driver.feed(ExperimentSlotLimitChanged(experiment_id=1, max_slots=5))
    assert [data.TYPE for data in decided] == ["AllocationResized"] * 2
    settle(driver)
    assert sum(sizes(driver).values()) == 5
    driver.feed(ExperimentSlotLimitChanged(experiment_id=1, max_slots=2))
    settle(driver)
    assert list(sizes(driver).values()) == [2]


# While it leaves to change its size


def growing(driver: Driver) -> None:
    """Trial 1-1 has slot 0 of a, and slots of b are kept for it."""
    driver.feed(joined("a", 1), submitted(1, slots_per_trial={"min": 1, "max": 3}, searcher=one()), *requested(1, 1))
    driver.time_passes(KEEP_US)
    assert [data.TYPE for data in driver.feed(joined("b", 2))] == ["AllocationResized"]


def test_a_canceled_one_gives_back_what_was_kept_for_it(driver: Driver) -> None:
    growing(driver)
    assert short(driver.feed(ExperimentCancelRequested(experiment_id=1), submitted(2, slots=2), *requested(2, 1))) == [
        "+2-1-1 b:0,1"
    ]


def test_a_paused_one_does_not_go_on(driver: Driver) -> None:
    growing(driver)
    driver.feed(ExperimentPauseRequested(experiment_id=1))
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1"]
    assert driver.state.pools["default"].free == 3


def test_one_that_fails_meanwhile_waits_for_the_verdict(driver: Driver) -> None:
    growing(driver)
    assert short(driver.feed(exited("1-1-1", "failed"))) == ["-1-1-1"]


def test_slots_of_a_lost_agent_are_not_granted(driver: Driver) -> None:
    growing(driver)
    driver.feed(AgentLost(agent_id="b", reason="lease"))
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1", "+1-1-2 a:0"]
    judged(driver)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.integers(1, 8)), min_size=1, max_size=6), st.integers(1, 40))
def test_elastic_shares_are_within_a_step_of_the_ideal(drawn: list[tuple[int, int, int]], capacity: int) -> None:
    leaves = []
    for key, (least, more, trials) in enumerate(drawn, 1):
        leaf = ShareNode(key, 1.0, float(trials * (least + more)), gang=least, order=(float(key), key))
        leaf.trials, leaf.most = trials, least + more
        leaves.append(leaf)
    divide(capacity, leaves)
    targets = whole_gangs(capacity, leaves)
    assert sum(targets.values()) <= capacity
    for leaf in leaves:
        target = targets[leaf.key]
        fits = [n for n in range(leaf.trials + 1) if n * leaf.gang <= target <= n * leaf.most]
        assert fits, f"{leaf.trials} trials of {leaf.gang} to {leaf.most} cannot use {target}"
        assert abs(target - leaf.share) < leaf.gang + 1e-6
