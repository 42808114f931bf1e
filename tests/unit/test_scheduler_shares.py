"""Fair share: each test names one promise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.request import (
    ShareChanged,
)
from tenuto.schemas.events.search import ExperimentCompleted
from tenuto.services.scheduler.policies.rounding import Loser, Part, Remainder
from tenuto.services.scheduler.policies.shares import ShareNode, divide
from tenuto.services.scheduler.state import Usage
from tenuto.services.scheduler.state.usage import STEPS_PER_HALF_LIFE, factor, settle
from tests.support.scheduler_driver import (
    WHY,
    Driver,
    exited,
    fair,
    held,
    joined,
    requested,
    settle_all,
    short,
    stopped,
    submitted,
)
from tests.support.whole_gangs import give, whole_gangs


@pytest.fixture
def driver() -> Driver:
    return Driver()


def end(driver: Driver, experiment: int) -> None:
    own = list(driver.state.experiments[experiment].allocations)
    for number in sorted(driver.state.experiments[experiment].trials):
        driver.feed(stopped(f"{experiment}-{number}"))
    driver.feed(*(exited(item) for item in own))
    driver.feed(ExperimentCompleted(experiment_id=experiment, best_trial_id=None, best_metric=None, trials=1, reason=WHY))


def test_shares_follow_who_comes_and_goes() -> None:
    """64 slots: two searches have 32 each; a third joins: 22, 21, 21; one ends: 32 each; one is left: 64."""
    driver = Driver(checks=False)
    driver.feed(fair(), *(joined(f"node-{n}", 8) for n in range(8)))
    driver.feed(submitted(1), *requested(1, *range(1, 101)), submitted(2), *requested(2, *range(1, 101)))
    settle_all(driver)
    assert held(driver) == {1: 32, 2: 32}
    driver.feed(submitted(3), *requested(3, *range(1, 101)))
    settle_all(driver)
    assert held(driver) == {1: 22, 2: 21, 3: 21}
    end(driver, 1)
    settle_all(driver)
    assert held(driver) == {2: 32, 3: 32}
    end(driver, 3)
    assert held(driver) == {2: 64}
    driver.core.check(driver.state)
    assert verify_decisions(driver.core, driver.log).ok
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)


def test_only_as_many_are_preempted_as_move(driver: Driver) -> None:
    driver.feed(fair(), joined("a", 8), submitted(1), *requested(1, *range(1, 20)), submitted(2))
    decided = driver.feed(*requested(2, *range(1, 20)))
    assert sum(isinstance(data, AllocationPreempted) for data in decided) == 4
    settle_all(driver)
    assert sum(event.type == "AllocationPreempted" for event in driver.log) == 4


def test_weights_and_the_tree_of_owners_divide_the_slots(driver: Driver) -> None:
    driver.feed(fair(), joined("a", 12), ShareChanged(owner="workspace", name="vision", weight=2.0))
    driver.feed(
        submitted(1, workspace="vision", user="ada"), submitted(2, workspace="vision", user="bob"),
        submitted(3, workspace="vision", user="bob", weight=3.0), submitted(4, workspace="speech", user="eve"),
    )  # fmt: skip
    for number in (1, 2, 3, 4):
        driver.feed(*requested(number, *range(1, 13)))
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 1, 3: 3, 4: 4}


def test_what_one_does_not_want_the_others_share(driver: Driver) -> None:
    driver.feed(fair(), joined("a", 9), submitted(1), submitted(2), submitted(3))
    driver.feed(*requested(1, 1), *requested(2, *range(1, 10)), *requested(3, *range(1, 10)))
    settle_all(driver)
    assert held(driver) == {1: 1, 2: 4, 3: 4}


def test_gangs_are_within_one_gang_of_their_share(driver: Driver) -> None:
    driver.feed(fair(), joined("a", 10), submitted(1, slots=4), submitted(2, slots=3), submitted(3))
    for number in (1, 2, 3):
        driver.feed(*requested(number, *range(1, 11)))
    settle_all(driver)
    slots = held(driver)
    assert sum(slots.values()) == 10
    assert all(abs(slots[key] - 10 / 3) < gang for key, gang in ((1, 4), (2, 3))), slots


def test_work_that_may_not_be_preempted_counts_inside_its_owners_share(driver: Driver) -> None:
    driver.feed(fair(), joined("a", 8), submitted(1, preemptible=False, user="ada"), *requested(1, 1, 2, 3))
    driver.feed(submitted(2, user="ada"), *requested(2, *range(1, 9)), submitted(3, user="bob"), *requested(3, *range(1, 9)))
    settle_all(driver)
    assert held(driver) == {1: 3, 2: 1, 3: 4}
    driver.feed(submitted(4, preemptible=False, user="bob"), *requested(4, 1))
    settle_all(driver)
    assert not any(
        item.startswith("!1-") for item in short([event.data for event in driver.log if event.type.startswith("Alloc")])
    )


def test_past_use_lowers_a_share_and_is_forgotten(driver: Driver) -> None:
    """One user had the cluster for long; when another comes, that one gets more than half, for a while."""
    driver.feed(fair(half_life=0.001), joined("a", 8), submitted(1, user="ada"), *requested(1, *range(1, 20)))
    driver.time_passes(3_600_000_000)
    driver.feed(submitted(2, user="bob"), *requested(2, *range(1, 20)))
    settle_all(driver)
    assert held(driver)[2] > 4 > held(driver)[1] > 0
    driver.time_passes(3_600_000_000)
    driver.feed(*requested(1, 20))
    settle_all(driver)
    driver.core.check(driver.state)
    assert verify_decisions(driver.core, driver.log).ok


def test_use_is_halved_in_a_half_life_and_never_overflows() -> None:
    half_life = 8_000_000
    used = settle(Usage(amount=0, at_us=0, slots=4), half_life * 100, half_life)
    idle = settle(Usage(used.amount, used.at_us, 0), used.at_us + half_life, half_life)
    assert abs(idle.amount / used.amount - 0.5) < 0.001
    assert settle(Usage(10**30, 0, 0), half_life * 1_000, half_life).amount <= 10**30 >> (512 // STEPS_PER_HALF_LIFE - 1)
    assert [factor(part, 0.25) for part in (0.0, 0.25, 0.5, 1.0)] == [2.0, 1.0, 0.5, 0.25]


shape = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 40), st.integers(0, 10)).map(lambda item: (item[0], max(item[1:]), item[2])),
    min_size=1, max_size=6,
)  # fmt: skip


@given(capacity=st.integers(1, 60), shape=shape)
def test_shares_are_max_min_fair(capacity: int, shape: list[tuple[int, int, int]]) -> None:
    """No one gets more who is ahead of another that wants more; all is used up or all are content."""
    nodes = [ShareNode(at, float(weight), demand, least) for at, (weight, demand, least) in enumerate(shape)]
    divide(capacity, nodes)
    total = sum(node.share for node in nodes)
    least = sum(node.least for node in nodes)
    assert total == pytest.approx(max(least, min(capacity, sum(node.demand for node in nodes))))
    for node in nodes:
        assert node.least - 1e-9 <= node.share <= node.demand + 1e-9
        for other in nodes:
            if node.share < node.demand - 1e-6 and other.share > other.least + 1e-6:
                assert other.share / other.weight <= node.share / node.weight + 1e-6


@given(capacity=st.integers(1, 60), shape=shape, gangs=st.lists(st.integers(1, 5), min_size=6, max_size=6))
def test_targets_are_whole_gangs_near_the_share(capacity: int, shape: list[tuple[int, int, int]], gangs: list[int]) -> None:
    leaves = [
        ShareNode(at, float(weight), demand * gangs[at], 0, gang=gangs[at], order=(at, at))
        for at, (weight, demand, _) in enumerate(shape)
    ]
    divide(capacity, leaves)
    targets = whole_gangs(capacity, leaves)
    assert sum(targets.values()) <= capacity
    for leaf in leaves:
        assert targets[leaf.key] % leaf.gang == 0
        assert abs(targets[leaf.key] - leaf.share) < leaf.gang


@pytest.mark.parametrize("gangs", [(1,), (1, 2, 4, 8), (3, 5), (8,)])
def test_what_rounding_leaves_over_is_kept_up_to_date(gangs: tuple[int, ...]) -> None:
    """As if it were given out anew each time, whether few or many of a thousand experiments change, and however much is left."""
    draw = Random(sum(gangs))
    kept, parts = Remainder(), dict[int, Part]()
    before = dict[int, int]()
    for _ in range(150):
        changed = sorted(draw.sample(range(100), draw.choice((0, 1, 1, 1, 2, 60))))
        gone = [parts.pop(owner) for owner in changed if owner in parts]
        for owner in changed if draw.random() < 0.9 else ():
            keys = range(owner * 10, owner * 10 + draw.randint(1, 10))
            losers = [Loser(-draw.randint(0, 3) / 4, (float(key), key), key, draw.choice(gangs)) for key in keys if key % 3]
            parts[owner] = ({key: draw.randint(0, 5) for key in keys}, sorted(losers))
        left, touched = draw.choice((-5, 0, 7, 400, 401, 402, 403, 5_000)), set[int]()
        kept.change(gone, [parts[owner] for owner in changed if owner in parts], touched)
        kept.settle(left, touched)
        anew = {key: slots for targets, _ in parts.values() for key, slots in targets.items()}
        give(anew, left, sorted(loser for _, losers in parts.values() for loser in losers))
        assert kept.targets == anew
        assert {key for key in before.keys() | anew.keys() if before.get(key) != anew.get(key)} <= touched
        before = anew
