"""Gangs that must be on one agent or in one rack, and where those go that any slots will do for."""

from __future__ import annotations

import pytest

from tests.support.scheduler_driver import Driver, exited, held, joined, requested, short, stopped, submitted


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
