"""Gangs that get their slots from trials that shrink and trials that are preempted; and elastic trials on slots that are lent."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import verify_decisions
from tenuto.schemas.events.pool import AllocationPreempted, AllocationResized
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.policies.preemption_candidates import PreemptionCandidates
from tenuto.services.scheduler.policies.targets import RememberedTargets, divided_with
from tenuto.services.scheduler.policies.victims import Candidate, cheapest, cost_of
from tenuto.services.scheduler.state.usable import slots_coming_back
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, settle_all, stopped, submitted

SINGLE = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
KEEP_US = 60_000_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def elastic(least: int, most: int) -> dict[str, float]:
    return {"min": least, "max": most, "keep_seconds": 60.0}


def start(driver: Driver, experiment: int, slots: object, **resources: object) -> list[object]:
    return driver.feed(
        submitted(experiment, slots=slots, searcher=SINGLE, **resources),  # type: ignore[arg-type]
        *requested(experiment, 1),
    )


def told(decided: list[object]) -> tuple[list[str], dict[str, int]]:
    """Preempted allocations, and the slots by which others shrink."""
    gone = [data.allocation_id for data in decided if isinstance(data, AllocationPreempted)]
    shrunk = {
        data.allocation_id: int(str(data.reason.numbers["slots_from"])) - sum(len(part.slot_ids) for part in data.slots)
        for data in decided
        if isinstance(data, AllocationResized)
    }
    return gone, shrunk


def test_a_gang_gets_what_shrinking_leaves_over_from_the_one_that_must_go(driver: Driver) -> None:
    """8 slots: an elastic trial has 4 (least 2), rigid ones 3 and 1. For a gang of 3 the elastic one gives 2 and the trial of 1
    goes; not the one of 3, which alone would suffice."""
    driver.feed(joined("a", 8))
    start(driver, 1, 3, priority=60)
    start(driver, 2, 1, priority=60)
    start(driver, 3, elastic(2, 4), priority=60)
    assert held(driver) == {1: 3, 2: 1, 3: 4}
    assert told(start(driver, 4, 3, priority=10)) == (["2-1-1"], {"3-1-1": 2})
    assert driver.feed(exited("2-1-1", "preempted"), exited("3-1-1", "preempted"))
    assert held(driver) == {1: 3, 3: 2, 4: 3}
    assert verify_decisions(driver.core, driver.log).ok


def test_a_gang_too_large_for_either_alone_is_served_by_both(driver: Driver) -> None:
    driver.feed(joined("a", 8))
    start(driver, 1, 4, priority=60)
    start(driver, 2, elastic(1, 4), priority=42)
    assert told(start(driver, 3, 7, priority=42)) == (["1-1-1"], {"2-1-1": 3})  # which it may shrink, and not preempt


def test_nothing_shrinks_or_goes_where_both_do_not_suffice(driver: Driver) -> None:
    driver.feed(joined("a", 8))
    start(driver, 1, 2, priority=60)
    start(driver, 2, 2, priority=42)
    start(driver, 3, elastic(2, 4), priority=42)
    assert told(start(driver, 4, 5, priority=42)) == ([], {})


@pytest.mark.parametrize("locality", ["agent", "rack"])
def test_both_are_combined_inside_one_room(driver: Driver, locality: str) -> None:
    driver.feed(joined("a", 4, labels=["rack=1"]), joined("b", 4, labels=["rack=2"]))
    start(driver, 1, 4, priority=60, locality="agent")
    start(driver, 2, 2, priority=60, locality="agent")
    start(driver, 3, elastic(1, 2), priority=60, locality="agent")
    assert told(start(driver, 4, 3, priority=10, locality=locality)) == (["2-1-1"], {"3-1-1": 1})


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, bool]], int]:
    """((least, more, priority, saved just now) of trials in the order in which they start, slots of the gang that comes)."""
    one = st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, 2, 3]), st.sampled_from([42, 60, 70]), st.booleans())
    return draw(st.lists(one, min_size=1, max_size=7)), draw(st.integers(1, 12))


def under_load(trials: list[tuple[int, int, int, bool]], driver: Driver) -> None:
    driver.feed(joined("a", 7), joined("b", 5))
    for key, (least, more, priority, saved) in enumerate(trials, 1):
        driver.time_passes(1_000 * key)
        start(driver, key, elastic(least, least + more) if more else least, priority=priority)
        item = f"{key}-1-1"
        if saved and item in driver.state.allocations:
            fact = {"checkpoint_id": "c", "batches": 1, "length": 1, "files": (), "size_bytes": 0, "location": "x"}
            driver.feed(CheckpointSaved.model_validate({"trial_id": f"{key}-1", "allocation_id": item, **fact}))
    settle_all(driver)


@settings(max_examples=150, deadline=None)
@given(load=loads())
def test_the_cheapest_set_is_preempted_beside_all_that_can_shrink(
    load: tuple[list[tuple[int, int, int, bool]], int],
) -> None:
    """Against every possible set."""
    trials, wanted = load
    driver = Driver(checks=False)
    under_load(trials, driver)
    state, pool = driver.state, driver.state.pools["default"]
    if pool.queue or pool.leaving or any(state.allocations[item].leaving for item in sorted(state.allocations)):
        return  # Others wait or leave already: there the gang is not alone.
    surplus = {
        item: state.allocations[item].size - state.experiments[state.allocations[item].experiment_id].slots_per_trial
        for item in sorted(state.allocations)
    }
    may_go = [item for item in surplus if state.experiments[state.allocations[item].experiment_id].priority > 10]
    decided = start(driver, 99, wanted, priority=10)
    gone, shrunk = told(decided)
    missing = wanted - pool.free
    if missing <= 0 or wanted > pool.capacity:
        assert (gone, shrunk) == ([], {})
        return
    now_us = driver.now_us - len(decided) - 1

    def cost(items: tuple[str, ...] | list[str]) -> tuple[int, ...]:
        victims = [Candidate(state.allocations[item], 1, 0) for item in items]
        ranks = sum(100 - state.experiments[victim.allocation.experiment_id].priority for victim in victims)
        columns = [sum(column) for column in zip(*(cost_of(victim, now_us) for victim in victims), strict=True)] or [0] * 4
        return (columns[0], columns[1], ranks)

    def enough(items: tuple[str, ...]) -> bool:
        freed = sum(state.allocations[item].size for item in items)
        return freed + sum(surplus[item] for item in surplus if item not in items) >= missing

    every = [one for count in range(len(may_go) + 1) for one in combinations(may_go, count) if enough(one)]
    assert cost(gone) == min(map(cost, every))
    freed = sum(state.allocations[item].size for item in gone)
    assert sum(shrunk.values()) == max(0, missing - freed)
    assert all(0 < slots <= surplus[item] and item not in gone for item, slots in shrunk.items())
    driver.core.check(driver.state)


@settings(max_examples=150, deadline=None)
@given(load=loads(), weight=st.sampled_from([1.0, 2.0, 5.0]))
def test_under_fair_share_nobody_comes_below_its_share_and_nobody_goes_in_vain(
    load: tuple[list[tuple[int, int, int, bool]], int], weight: float
) -> None:
    trials, wanted = load
    driver = Driver(checks=False)
    driver.feed(fair())
    under_load(trials, driver)
    before = driver.state
    if before.pools["default"].queue or any(before.allocations[item].leaving for item in sorted(before.allocations)):
        return
    decided = start(driver, 99, wanted, weight=weight)
    gone, shrunk = told(decided)
    pool = driver.state.pools["default"]
    targets = divided_with(driver.state, pool, driver.now_us, RememberedTargets()).targets
    lost = {before.allocations[item].experiment_id for item in [*gone, *shrunk]}
    for key in sorted(lost):
        assert pool.held.get(key, 0) >= targets.get(key, 0), "it came below its share"
    if gone:
        missing = wanted - before.pools["default"].free
        freed = sum(before.allocations[item].size for item in gone) + sum(shrunk.values())
        assert freed >= missing
        smallest = min(before.allocations[item].size for item in gone)
        assert freed - smallest < missing, "one of them went in vain"


def spared_by_all(driver: Driver, targets: dict[int, int], taken: set[str]) -> dict[str, float]:
    """Found anew for all experiments: gangs that may go, and what their experiment holds for each unit of weight until then."""
    found: dict[str, float] = {}
    state = driver.state
    for key in sorted(targets):
        other = state.experiments[key]
        running = [state.allocations[item] for item in other.allocations if item not in taken]
        holds = sum(item.size for item in running)
        for allocation in sorted(running, key=lambda item: (-item.since_us, -item.grant)):
            if holds - allocation.size < targets[key]:
                break
            found[allocation.allocation_id] = holds / other.weight
            holds -= allocation.size
    return found


@settings(max_examples=100, deadline=None)
@given(data=st.data(), wanted=st.lists(st.integers(1, 6), max_size=6))
def test_who_may_be_spared_is_kept_up_to_date_as_gangs_are_taken(data: st.DataObject, wanted: list[int]) -> None:
    driver = Driver(checks=False)
    driver.feed(joined("a", 30))
    for key in range(1, 1 + data.draw(st.integers(1, 5))):
        size, more = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([0, 0, 2]))
        slots = elastic(size, size + more) if more else size
        driver.feed(submitted(key, slots=slots, weight=data.draw(st.sampled_from([1.0, 3.0]))))  # type: ignore[arg-type]
        driver.feed(*requested(key, *range(1, 1 + data.draw(st.integers(1, 5)))))
    state, pool = driver.state, driver.state.pools["default"]
    targets = {key: data.draw(st.integers(0, pool.held[key] - 1)) for key in sorted(pool.held)}
    taken: set[str] = set()
    spared = PreemptionCandidates(state, pool, sorted(targets), targets, taken, lambda item: slots_coming_back(state, pool, item))
    for missing in wanted:
        anew = spared_by_all(driver, targets, taken)
        alone = [item for item in sorted(state.allocations) if item not in taken and spared.alone(state.allocations[item])]
        assert set(anew) <= set(alone)
        assert {state.allocations[item].experiment_id for item in alone} == {
            state.allocations[item].experiment_id for item in anew
        }
        near = [Candidate(state.allocations[item], 1, 0) for item in alone if data.draw(st.booleans())]
        together = spared.together(near)
        for key in sorted(targets):
            holds = sum(state.allocations[item].size for item in state.experiments[key].allocations if item not in taken)
            going = sum(item.allocation.size for item in together if item.allocation.experiment_id == key)
            left = [item for item in near if item.allocation.experiment_id == key and item not in together]
            assert holds - going >= targets[key] or not going
            assert all(holds - going - item.allocation.size < targets[key] for item in left), "no more of them may go"
        ordered = sorted(anew, key=lambda item: (-anew[item], state.allocations[item].experiment_id))
        every = [Candidate(state.allocations[item], state.allocations[item].size, at) for at, item in enumerate(ordered)]
        offered = [item.allocation.allocation_id for item in spared.candidates(missing)]
        assert [item for item in ordered if item in offered] == offered
        chosen = cheapest(spared.candidates(missing), missing, driver.now_us)
        best = cheapest(every, missing, driver.now_us)
        assert [sum(item.allocation.size for item in one) for one in (chosen, best)] == [
            sum(item.allocation.size for item in best)
        ] * 2
        assert len(chosen) == len(best)
        taken |= {item.allocation.allocation_id for item in chosen}


# Slots that another pool lends


def lent(driver: Driver) -> None:
    """Pool `default` is full with a rigid trial; an elastic one (1 to 4) runs on `spare`."""
    driver.feed(joined("a", 1), joined("b", 4, pool="spare"))
    start(driver, 1, 1)
    start(driver, 2, elastic(1, 4), fallback_pools=["spare"])


def test_an_elastic_trial_starts_with_what_a_fallback_pool_has_free(driver: Driver) -> None:
    lent(driver)
    assert held(driver) == {1: 1, 2: 4}
    driver = Driver()
    driver.feed(ShareChanged(owner="user", name="ada", weight=1.0, max_slots=3))
    lent(driver)
    assert held(driver) == {1: 1, 2: 2}


def test_it_gives_lent_slots_to_any_of_the_lenders_own_and_grows_again(driver: Driver) -> None:
    lent(driver)
    assert told(start(driver, 3, 2, pool="spare", priority=99)) == ([], {"2-1-1": 2})
    driver.feed(exited("2-1-1", "preempted"))
    assert held(driver) == {1: 1, 2: 2, 3: 2}
    driver.time_passes(KEEP_US)
    driver.feed(stopped("3-1"))
    decided = driver.feed(exited("3-1-1"))
    assert [sum(len(part.slot_ids) for part in data.slots) for data in decided if isinstance(data, AllocationResized)] == [4]
    driver.feed(exited("2-1-2", "preempted"))
    assert held(driver) == {1: 1, 2: 4}
    assert driver.state.allocations["2-1-3"].pool == "spare"
    assert verify_decisions(driver.core, driver.log).ok


@pytest.mark.parametrize("policy", ["priority", "fair_share", "fifo"])
def test_the_lenders_own_trials_grow_first(driver: Driver, policy: str) -> None:
    driver.feed(PoolPolicyChanged.model_validate({"pool": "spare", "policy": policy}))
    driver.feed(joined("a", 1), joined("b", 4, pool="spare"))
    start(driver, 1, 1)
    start(driver, 3, 2, pool="spare")
    start(driver, 4, elastic(1, 3), pool="spare", priority=99)
    start(driver, 5, 1, pool="spare")
    settle_all(driver)
    for item in [key for key in sorted(driver.state.allocations) if driver.state.allocations[key].leaving]:
        driver.feed(exited(item, "preempted"))
    start(driver, 2, elastic(1, 4), fallback_pools=["spare"], priority=1)
    assert held(driver) == {1: 1, 3: 2, 4: 1, 5: 1}
    driver.feed(stopped("3-1"), exited("3-1-1"))
    assert held(driver)[2] >= 1
    driver.time_passes(KEEP_US)
    driver.feed(stopped("5-1"))
    [resized] = [data for data in driver.feed(exited("5-1-1")) if isinstance(data, AllocationResized)]
    assert resized.experiment_id == 4
