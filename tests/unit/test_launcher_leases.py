"""Leases run only while agents could have been heard."""

from __future__ import annotations

from tenuto.services.launcher.handlers.leases import Leases


def make() -> Leases:
    leases = Leases(lease_seconds=10, tick_seconds=0.5)
    assert leases.look(["a"], 0.0, connected=True) == []
    return leases


def look_until(leases: Leases, start: float, end: float, connected: bool = True) -> list[str]:
    now, found = start, []
    while now < end and not found:
        found = leases.look(["a"], now, connected=connected)
        now += 0.5
    return found


def test_a_silent_agent_is_lost_after_its_lease() -> None:
    leases = make()
    assert leases.hear("a", "s", 2.0, rival_seconds=6)
    assert look_until(leases, 0.5, 12.0) == []
    assert leases.look(["a"], 12.0, connected=True) == ["a"]


def test_an_agent_that_the_launcher_knows_from_the_log_gets_a_whole_lease() -> None:
    assert look_until(make(), 0.5, 10.0) == []


def test_the_time_without_a_bus_does_not_count() -> None:
    leases = make()
    assert look_until(leases, 0.5, 60.0, connected=False) == []
    assert look_until(leases, 60.0, 69.5) == []
    assert leases.look(["a"], 69.5, connected=True) == ["a"]


def test_the_time_in_which_the_launcher_stood_still_does_not_count() -> None:
    leases = make()
    assert leases.look(["a"], 100.0, connected=True) == []
    assert look_until(leases, 100.5, 109.5) == []


def test_two_agents_of_one_name_are_told_apart_and_a_replaced_one_is_let_in() -> None:
    leases = make()
    assert leases.hear("a", "s1", 1.0, rival_seconds=6)
    assert not leases.hear("a", "s2", 2.0, rival_seconds=6)
    assert leases.hear("a", "s1", 3.0, rival_seconds=6)
    assert leases.hear("a", "s2", 9.5, rival_seconds=6)
