"""Gangs that must be on one agent or in one rack, and where those go that any slots will do for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import PoolPolicyChanged
from tenuto.schemas.queue import QueueRow
from tenuto.services.scheduler.explain import explain
from tenuto.services.scheduler.policies.placement import FreeSlots
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, settle_all, short, stopped, submitted


@pytest.fixture
def driver() -> Driver:
    return Driver()


# Rooms whose slots are being freed


def test_slots_being_freed_are_promised_once(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 4))
    for number in (1, 2):
        driver.feed(submitted(number, slots=4, priority=60), *requested(number, 1))
    first = driver.feed(submitted(5, slots=4, priority=10, locality="agent"), *requested(5, 1))
    second = driver.feed(submitted(6, slots=4, priority=10, locality="agent"), *requested(6, 1))
    assert sorted(short(first) + short(second)) == ["!1-1-1", "!2-1-1"], "the second does not wait for the slots of the first"


def test_what_is_being_freed_beyond_the_need_is_promised_to_the_next(driver: Driver) -> None:
    driver.feed(joined("a", 8), joined("b", 8))
    for number in (1, 2):
        driver.feed(submitted(number, slots=8, priority=60), *requested(number, 1))
    first = driver.feed(submitted(5, slots=4, priority=10, locality="agent"), *requested(5, 1))
    second = driver.feed(submitted(6, slots=4, priority=10, locality="agent"), *requested(6, 1))
    third = driver.feed(submitted(7, slots=4, priority=10, locality="agent"), *requested(7, 1))
    assert (len(first), len(second), len(third)) == (1, 0, 1)


def test_one_pass_preempts_no_more_for_two_gangs_than_they_need(driver: Driver) -> None:
    driver.feed(joined("a", 8), joined("b", 8))
    for number in (1, 2):
        driver.feed(submitted(number, slots=8, priority=60), *requested(number, 1))
    driver.feed(submitted(9, slots=16, priority=5, preemptible=False), *requested(9, 1))
    driver.feed(*(exited(f"{number}-1-1", "preempted") for number in (1, 2)))
    for number in (5, 6):
        driver.feed(submitted(number, slots=4, priority=10, locality="agent"), *requested(number, 1))
    driver.feed(joined("c", 8), joined("d", 8))
    assert held(driver) == {9: 16, 5: 4, 6: 4, 1: 8}


def test_an_unconstrained_gang_is_not_promised_the_slots_of_a_room(driver: Driver) -> None:
    driver.feed(joined("a", 4), joined("b", 4))
    for number in (1, 2):
        driver.feed(submitted(number, slots=4, priority=60), *requested(number, 1))
    driver.feed(submitted(5, slots=3, priority=10, locality="agent"), *requested(5, 1))
    decided = driver.feed(submitted(6, slots=2, priority=10), *requested(6, 1))
    assert len(decided) == 1, "one slot is left over where the room is, and another one is missing"


# Rooms that are looked at


def test_the_33rd_room_is_found_if_only_its_trials_may_be_preempted(driver: Driver) -> None:
    """32 agents have more free slots, but what runs there is as urgent."""
    names = [f"n{number:02}" for number in range(32)]
    driver.feed(*(joined(name, 2) for name in names))
    for number, name in enumerate(names):
        others = [other for other in names if other != name]
        driver.feed(submitted(100 + number, priority=5, exclude_agents=others), *requested(100 + number, 1))
    driver.feed(joined("z", 2), submitted(50, slots=2, priority=90, locality="agent", exclude_agents=names), *requested(50, 1))
    assert short(driver.feed(submitted(60, slots=2, priority=10, locality="agent"), *requested(60, 1))) == ["!50-1-1"]
    assert short(driver.feed(exited("50-1-1", "preempted"))) == ["-50-1-1", "+60-1-1 z:0,1"]
    driver.feed(stopped("60-1"), exited("60-1-1"))


# Which slots a gang gets


def agents_of(decided: object) -> dict[str, int]:
    [grant] = decided  # type: ignore[misc]
    assert isinstance(grant, AllocationGranted)
    return {part.agent_id: len(part.slot_ids) for part in grant.slots}


def in_racks(driver: Driver, **racks: str) -> None:
    """Agents of 8 slots each, by rack; `_` has no label."""
    for rack, names in racks.items():
        driver.feed(*(joined(name, 8, labels=[] if rack == "_" else [f"rack={rack}"]) for name in names.split()))


@pytest.mark.parametrize("asked", [{}, {"exclude_agents": ["elsewhere"]}])
def test_a_gang_without_a_wish_for_a_rack_still_goes_to_one_that_has_the_slots(driver: Driver, asked: dict[str, object]) -> None:
    in_racks(driver, r1="n1 n3", r2="n2", _="n0")
    assert agents_of(driver.feed(submitted(1, slots=16, **asked), *requested(1, 1))) == {"n1": 8, "n3": 8}  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{}, {"exclude_agents": ["elsewhere"]}, {"locality": "rack"}])
def test_the_rack_where_it_leaves_least_over_is_taken(driver: Driver, asked: dict[str, object]) -> None:
    in_racks(driver, r1="a b c", r2="d e")
    assert agents_of(driver.feed(submitted(1, slots=12, **asked), *requested(1, 1))) == {"d": 8, "e": 4}  # type: ignore[arg-type]
    driver.feed(submitted(2, slots=6), *requested(2, 1))
    assert agents_of(driver.feed(submitted(3, slots=10, **asked), *requested(3, 1))).keys() <= {"a", "b", "c"}  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{}, {"exclude_agents": ["elsewhere"]}, {"locality": "rack"}])
def test_one_agent_that_has_the_slots_is_preferred_to_a_rack(driver: Driver, asked: dict[str, object]) -> None:
    driver.feed(joined("n1", 2, labels=["rack=1"]), joined("n2", 2, labels=["rack=1"]), joined("n3", 5, labels=["rack=2"]))
    assert agents_of(driver.feed(submitted(1, slots=4, **asked), *requested(1, 1))) == {"n3": 4}  # type: ignore[arg-type]


def test_a_gang_that_fits_no_rack_goes_where_there_are_slots(driver: Driver) -> None:
    in_racks(driver, r1="n1 n3", r2="n2", _="n0")
    assert sum(agents_of(driver.feed(submitted(1, slots=24), *requested(1, 1))).values()) == 24


def test_racks_are_known_anew_when_agents_say_other_labels(driver: Driver) -> None:
    in_racks(driver, r1="a b", r2="c d")
    driver.feed(*(joined(name, 8, labels=[f"rack={rack}"]) for name, rack in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))))
    assert agents_of(driver.feed(submitted(1, slots=16), *requested(1, 1))) == {"a": 8, "c": 8}
    driver.feed(stopped("1-1"), exited("1-1-1"))
    in_racks(driver, x="a b")
    assert agents_of(driver.feed(submitted(2, slots=24), *requested(2, 1))) == {"a": 8, "b": 8, "c": 8}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_racks_are_counted_as_slots_are_taken_hidden_and_shown(data: st.DataObject) -> None:
    """Whatever happened before: the next gang goes where it would go if all were counted anew."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=8))
    left = {f"n{at}": tuple(range(size)) for at, size in enumerate(sizes)}
    racks = {name: f"rack={at % 3}" for at, name in enumerate(sorted(left)) if at % 4}

    def counted() -> FreeSlots:
        free = {name: slots for name, slots in left.items() if slots and name not in hidden}
        idle = tuple(sorted((len(slots), name) for name, slots in free.items()))
        return FreeSlots(idle, sum(map(len, free.values())), free.__getitem__, lambda: racks)

    hidden: set[str] = set()
    first = dict(left)
    known = FreeSlots(
        tuple(sorted((len(slots), name) for name, slots in left.items())), sum(sizes), first.__getitem__, lambda: racks
    )
    for name in data.draw(st.lists(st.sampled_from([*sorted(left), "take", "take", "take"]), max_size=12)):
        if name in hidden:
            known.show([name])
            hidden.discard(name)
        elif name in left:
            known.hide([name])
            hidden.add(name)
        elif known.count:
            wanted = data.draw(st.integers(1, known.count))
            parts = known.take(wanted)
            assert parts == counted().take(wanted)
            for part in parts:
                left[part.agent_id] = tuple(slot for slot in left[part.agent_id] if slot not in part.slot_ids)


def test_a_growing_trial_stays_in_its_rack(driver: Driver) -> None:
    driver.feed(joined("a", 2, labels=["rack=1"]), joined("b", 2), joined("c", 3, labels=["rack=1"]))
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    elastic = {"slots_per_trial": {"min": 2, "max": 4}, "searcher": searcher}
    assert agents_of(driver.feed(submitted(1, **elastic), *requested(1, 1))) == {"a": 2, "c": 2}  # type: ignore[arg-type]


# Rooms held aside


def waits(driver: Driver, experiment: int) -> QueueRow:
    [row] = [row for row in explain(driver.state, "default", driver.now_us) if row.experiment_id == experiment]
    return row


def held_aside(driver: Driver, policy: str = "priority", **asked: object) -> int:
    """Eight slots, of which one is busy for 100 s and three for two hours; experiment 3 waits for all. Returns when it can."""
    driver.feed(PoolPolicyChanged.model_validate({"pool": "default", "policy": policy}), joined("a", 8, labels=["k=x"]))
    driver.feed(submitted(1, slots=1, preemptible=False, expected=100), *requested(1, 1))
    driver.feed(submitted(2, slots=3, preemptible=False, expected=7200), *requested(2, 1))
    driver.feed(submitted(3, **{"slots": 8, "agent_labels": ["k=x"], "user": "bob", **asked}), *requested(3, 1))  # type: ignore[arg-type]
    return driver.state.allocations["2-1-1"].granted_us + 7_200_000_000


@pytest.mark.parametrize("policy", ["priority", "fifo"])
def test_a_gang_with_constraints_has_a_reserved_start_and_others_start_before_it(driver: Driver, policy: str) -> None:
    start_us = held_aside(driver, policy)
    assert waits(driver, 3).expected_us == start_us, "when the last of its slots is free, not when the first one is"
    [grant] = driver.feed(submitted(4, expected=60), *requested(4, 1))
    assert isinstance(grant, AllocationGranted)
    assert (grant.reason.rule, grant.backfill_until_us) == (f"{policy}.backfills", start_us)
    assert short(driver.feed(submitted(5, expected=7300), *requested(5, 1))) == [], "it would delay the gang"
    assert short(driver.feed(submitted(6), *requested(6, 1))) == [], "nobody knows whether it would"
    assert waits(driver, 3).expected_us == start_us
    driver.feed(stopped("1-1"), exited("1-1-1"), stopped("4-1"), exited("4-1-1"))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1")))[1] == "+3-1-1 a:0,1,2,3,4,5,6,7"


def test_one_that_runs_longer_than_it_said_gives_the_room_back(driver: Driver) -> None:
    held_aside(driver)
    driver.feed(submitted(4, expected=60), *requested(4, 1))
    driver.time_passes(7_300_000_000)
    driver.feed(stopped("1-1"), exited("1-1-1"))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["!4-1-1", "-2-1-1"]
    assert short(driver.feed(exited("4-1-1", "preempted")))[1] == "+3-1-1 a:0,1,2,3,4,5,6,7"


def test_what_the_gang_leaves_over_in_its_room_may_be_used_for_long(driver: Driver) -> None:
    """It needs 6 of 8 slots: two may go to others for good, and no more."""
    held_aside(driver, slots=6)
    assert len(driver.feed(submitted(4, slots=2), *requested(4, 1))) == 1
    assert short(driver.feed(submitted(5), *requested(5, 1))) == []
    driver.feed(stopped("2-1"))
    assert short(driver.feed(exited("2-1-1")))[1:] == [], "one slot is missing still"
    assert len(driver.feed(stopped("1-1"), exited("1-1-1"))) >= 2
    assert held(driver) == {3: 6, 4: 2}


def test_less_urgent_work_uses_a_room_only_if_it_can_be_preempted_or_delays_nobody(driver: Driver) -> None:
    start_us = held_aside(driver, priority=10)
    [backfilled] = driver.feed(submitted(5, priority=60, preemptible=False, expected=60), *requested(5, 1))
    assert isinstance(backfilled, AllocationGranted)
    assert backfilled.backfill_until_us == start_us
    [lent] = driver.feed(submitted(6, slots=2, priority=60), *requested(6, 1))
    assert isinstance(lent, AllocationGranted)
    assert lent.backfill_until_us is None
    assert short(driver.feed(submitted(4, priority=60, preemptible=False), *requested(4, 1))) == []
    assert waits(driver, 4).expected_us is None, "what ends in the room is the gang's, and nobody knows when the gang ends"
    assert waits(driver, 3).expected_us == start_us
    driver.feed(stopped("1-1"), exited("1-1-1"), stopped("5-1"), exited("5-1-1"))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["!6-1-1", "-2-1-1"]


def test_the_room_where_it_can_start_first_is_held_aside(driver: Driver) -> None:
    """`b` has more free slots, but nobody knows until when the others are used; on `a` it is known."""
    driver.feed(joined("a", 4), joined("b", 4))
    driver.feed(submitted(1, slots=3, expected=100, exclude_agents=["b"]), *requested(1, 1))
    driver.feed(submitted(2, slots=2, exclude_agents=["a"]), *requested(2, 1))
    driver.feed(submitted(3, slots=4, locality="agent"), *requested(3, 1))
    assert waits(driver, 3).expected_us == driver.state.allocations["1-1-1"].granted_us + 100_000_000
    [grant] = driver.feed(submitted(4, slots=2), *requested(4, 1))
    assert isinstance(grant, AllocationGranted)
    assert [part.agent_id for part in grant.slots] == ["b"]


def test_a_gang_behind_reckons_with_the_room_that_is_held_aside(driver: Driver) -> None:
    """Experiment 4 needs three slots anywhere. What ends in the room before its gang starts is the gang's; then two are left
    over, and the third comes when `b` is free."""
    start_us = held_aside(driver, slots=6)
    driver.feed(joined("b", 1), submitted(5, expected=9000, exclude_agents=["a"]), *requested(5, 1))
    driver.feed(submitted(4, slots=3), *requested(4, 1))
    later_us = driver.state.allocations["5-1-1"].granted_us + 9_000_000_000
    assert later_us > start_us
    assert waits(driver, 4).expected_us == later_us


@pytest.mark.parametrize("asked", [{}, {"agent_labels": ["k=x"]}])
def test_those_behind_are_told_for_whom_slots_are_kept(driver: Driver, asked: dict[str, object]) -> None:
    held_aside(driver)
    driver.feed(submitted(4, slots=3, **asked), *requested(4, 1))  # type: ignore[arg-type]
    text = waits(driver, 4).text
    assert "4" in text
    assert "kept for experiment 3" in text


def test_free_slots_of_a_room_are_lent_to_those_above_their_share(driver: Driver) -> None:
    """Fair share: experiment 3 is within its share and could have them back."""
    driver.feed(fair(), joined("a", 4), joined("b", 4))
    for number, other in ((1, "b"), (2, "a")):
        driver.feed(submitted(number, slots=2, preemptible=False, exclude_agents=[other]), *requested(number, 1))
    driver.feed(submitted(3, slots=4, user="bob", locality="agent", weight=99), *requested(3, 1))
    driver.feed(submitted(4, user="bob"), *requested(4, 1, 2, 3))
    assert held(driver) == {1: 2, 2: 2, 4: 3}
    driver.feed(stopped("2-1"), exited("2-1-1"))
    settle_all(driver)
    assert held(driver)[3] == 4


@pytest.mark.parametrize("asked", [{}, {"locality": "agent"}])
@pytest.mark.parametrize("slots", [{"slots": 1}, {"slots_per_trial": {"min": 1, "max": 2, "keep_seconds": 0}}])
def test_nobody_gives_way_where_the_slots_are_held_aside_for_another(
    driver: Driver, asked: dict[str, object], slots: dict[str, object]
) -> None:
    """What experiment 1 gave up, 3 would get, not 4; and as 3 has too few still, 1 would be lent it again, for ever."""
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 100}}
    driver.feed(joined("a", 5))
    driver.feed(submitted(2, slots=3, preemptible=False), *requested(2, 1))
    driver.feed(submitted(1, priority=60, **{"searcher": searcher, **slots}), *requested(1, 1))  # type: ignore[arg-type]
    if "slots" in slots:
        driver.feed(submitted(5, priority=60), *requested(5, 1))
    assert driver.state.pools["default"].free == 0
    assert short(driver.feed(submitted(3, slots=5, locality="agent"), *requested(3, 1))) == []
    assert short(driver.feed(submitted(4, preemptible=False, **asked), *requested(4, 1))) == []  # type: ignore[arg-type]
    assert short(driver.feed(submitted(6, user="bob", **asked), *requested(6, 1))) == []  # type: ignore[arg-type]
