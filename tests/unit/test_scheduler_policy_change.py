"""Trials that run when a pool's policy changes go on, whatever the policies, unless `preempt` is set."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentPriorityChanged, PoolPolicyChanged
from tenuto.schemas.events.trial import CheckpointSaved
from tests.support.scheduler_driver import Driver, exited, held, joined, requested, settle_all, short, stopped, submitted
from tests.support.scheduler_histories import POLICIES, history, play


def policy(name: str, **more: Any) -> PoolPolicyChanged:
    return PoolPolicyChanged.model_validate({"pool": "default", "policy": name, **more})


def saved(item: str) -> EventData:
    fact = {"trial_id": item.rsplit("-", 1)[0], "allocation_id": item, "checkpoint_id": f"{item}-x", "batches": 1, "length": 1}
    return CheckpointSaved.model_validate({**fact, "files": (), "size_bytes": 0, "location": "x"})


def full(before: str) -> Driver:
    """Experiment 1 of ada has all eight slots; bob's more urgent experiment 2 waits."""
    driver = Driver()
    driver.feed(policy(before), joined("a", 8), submitted(1, user="ada", priority=60), *requested(1, *range(1, 13)))
    driver.feed(submitted(2, user="bob", priority=60), *requested(2, *range(1, 13)))
    driver.feed(ExperimentPriorityChanged(experiment_id=2, priority=42) if before == "fifo" else policy(before))
    return driver


def proven(driver: Driver) -> None:
    assert verify_decisions(driver.core, driver.log).ok
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)


@pytest.mark.parametrize("after", ["priority", "fair_share"])
def test_what_runs_goes_on_and_what_starts_is_under_the_new_policy(after: str) -> None:
    driver = full("fifo")
    assert not driver.feed(policy(after))
    assert not driver.feed(saved("1-1-1"), *requested(2, 13)), "neither does anything that comes later preempt it"
    assert held(driver) == {1: 8}
    for number in range(1, 5):
        driver.feed(stopped(f"1-{number}"), exited(f"1-{number}-1"))
    assert held(driver) == {1: 4, 2: 4}, "who is next, the new policy says"
    driver.feed(submitted(3, user="eve", priority=10), *requested(3, 1))
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 3, 3: 1}, "what started since may have to give way"
    proven(driver)


@pytest.mark.parametrize(("after", "left"), [("priority", {2: 8}), ("fair_share", {1: 4, 2: 4})])
def test_with_preempt_it_gives_way(after: str, left: dict[int, int]) -> None:
    driver = full("fifo")
    assert driver.feed(policy(after, preempt=True))
    settle_all(driver)
    assert held(driver) == left
    driver = full("fifo")
    assert not driver.feed(policy(after), policy(after))
    assert driver.feed(policy(after, preempt=True)), "also later"
    settle_all(driver)
    assert held(driver) == left
    proven(driver)


def test_the_same_policy_again_changes_nothing() -> None:
    driver = full("fair_share")
    settle_all(driver)
    driver.feed(policy("fair_share"), submitted(3, user="eve"), *requested(3, *range(1, 5)))
    settle_all(driver)
    assert held(driver) == {1: 3, 2: 3, 3: 2}


def test_another_half_life_preempts_nothing() -> None:
    driver = full("fair_share")
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 4}
    assert not driver.feed(policy("fair_share", usage_half_life_hours=1))
    driver.time_passes(3_600_000_000)
    assert not driver.feed(submitted(3, user="eve"), *requested(3, *range(1, 5)))
    proven(driver)


def test_an_elastic_trial_that_runs_keeps_its_slots() -> None:
    driver = Driver()
    driver.feed(policy("fifo"), joined("a", 8), submitted(1, user="ada", slots={"min": 2, "max": 8}), *requested(1, 1))  # type: ignore[arg-type]
    driver.time_passes(100_000_000)
    driver.feed(saved("1-1-1"))
    before = {key: driver.state.allocations[key].size_soon for key in driver.state.allocations}
    assert not driver.feed(policy("fair_share"))
    assert not [line for line in short(driver.feed(submitted(2, user="bob"), *requested(2, 1))) if line.startswith("!")]
    assert {key: driver.state.allocations[key].size_soon for key in driver.state.allocations} == before
    driver.feed(policy("fair_share", preempt=True))
    assert driver.state.allocations[sorted(before)[0]].leaving == "resized"
    proven(driver)


@pytest.mark.parametrize(("before", "after"), list(permutations(POLICIES, 2)))
def test_in_random_histories_a_change_preempts_nobody(before: str, after: str) -> None:
    """Neither at once, nor for an urgent experiment that comes then."""
    for seed in range(8):
        driver = play(history(seed, before), complete=False)
        running = [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].pool == "default"]
        driver.feed(policy(after), submitted(99, user="new", priority=1), *requested(99, 1, 2, 3))
        assert not [key for key in running if driver.state.allocations[key].leaving], f"seed {seed}"
        driver.core.check(driver.state)
