"""Table tests of the scheduler: each names one promise, and shows the decisions word for word."""

from __future__ import annotations

import dataclasses

import pytest

from tenuto.kernel.core import Core, Refused
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.request import (
    ExperimentCancelRequested,
    ExperimentPauseRequested,
    ExperimentPriorityChanged,
    ExperimentResumeRequested,
    ExperimentSlotLimitChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted
from tenuto.services.scheduler.core import SchedulerCore
from tenuto.services.scheduler.policies.placement import FreeSlots
from tenuto.services.scheduler.state import State
from tests.support.said import said
from tests.support.scheduler_driver import (
    NAMESPACE,
    WHY,
    Driver,
    exited,
    extended,
    failed,
    joined,
    paused,
    requested,
    short,
    stopped,
    submitted,
)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_the_core_is_a_core() -> None:
    core: Core[State] = SchedulerCore()
    assert (core.name, core.rule_version) == ("scheduler", 9)
    assert not SchedulerCore.consumes & SchedulerCore.emits


def test_trials_are_granted_in_order_of_priority_experiment_and_number(driver: Driver) -> None:
    driver.feed(submitted(1, priority=50), submitted(2, priority=10), submitted(3, priority=10))
    driver.feed(*requested(1, 1), *requested(3, 2, 1), *requested(2, 1))
    assert short(driver.feed(joined("a", 3))) == ["+2-1-1 a:0", "+3-1-1 a:1", "+3-2-1 a:2"]
    assert short(driver.feed(exited("3-1-1"), stopped("3-1"))) == ["-3-1-1", "+3-1-2 a:1"]


def test_the_exit_after_a_stop_gives_the_slot_to_the_next(driver: Driver) -> None:
    driver.feed(submitted(1), *requested(1, 1, 2), joined("a", 1))
    assert short(driver.feed(stopped("1-1"))) == []
    assert short(driver.feed(exited("1-1-1"))) == ["-1-1-1", "+1-2-1 a:0"]


def test_a_grant_says_why(driver: Driver) -> None:
    [grant] = driver.feed(submitted(1, slots=2, max_slots=4), joined("a", 3), *requested(1, 1))
    assert grant.reason.rule == "priority.fits"
    assert said(grant) == "Trial 1-1 is next at priority 42 and needs 2 of 3 free slots; it gets slots of a (2)."
    assert grant.reason.numbers == {
        "priority": 42, "slots_wanted": 2, "slots_free": 3, "experiment_slots_used": 0, "experiment_slots_max": 4,
    }  # fmt: skip


def test_a_gang_starts_whole_or_not_at_all(driver: Driver) -> None:
    driver.feed(submitted(1, slots=3), *requested(1, 1), joined("a", 2))
    assert driver.state.allocations.get("1-1-1") is None
    assert short(driver.feed(joined("b", 2))) == ["+1-1-1 a:0,1 b:0"]


def test_a_large_gang_is_not_starved_by_small_ones_of_its_priority(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(2), *requested(2, 1, 2, 3, 4), submitted(1, slots=2), *requested(1, 1))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["-2-1-1"]  # held for the gang
    assert short(driver.feed(stopped("2-2"), exited("2-2-1"))) == ["-2-2-1", "+1-1-1 a:0,1"]


def test_lower_priority_uses_held_slots_and_gives_them_back(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(2), *requested(2, 1, 2), submitted(1, slots=2), *requested(1, 1))
    driver.feed(submitted(3, priority=90), *requested(3, 1, 2))
    assert short(driver.feed(stopped("2-1"), exited("2-1-1"))) == ["-2-1-1", "+3-1-1 a:0"]
    assert short(driver.feed(stopped("2-2"))) == ["!3-1-1"]  # its slot and the one being freed suffice
    assert short(driver.feed(exited("2-2-1"))) == ["-2-2-1"]  # and are not given away meanwhile
    assert short(driver.feed(exited("3-1-1", "preempted"))) == ["-3-1-1", "+1-1-1 a:0,1"]


def test_a_gang_that_can_never_fit_holds_nobody_back(driver: Driver) -> None:
    assert short(driver.feed(joined("a", 2), submitted(1, slots=3), *requested(1, 1), submitted(2), *requested(2, 1))) == [
        "+2-1-1 a:0"
    ]


def test_preemption_takes_the_cheapest_victims_that_suffice(driver: Driver) -> None:
    driver.feed(
        joined("a", 4), submitted(1, priority=60), submitted(2, priority=50, slots=2), *requested(1, 1, 2), *requested(2, 1)
    )
    driver.feed(submitted(3, priority=10, slots=1))
    decided = driver.feed(*requested(3, 1))
    assert short(decided) == ["!1-2-1"]  # least urgent, then latest granted
    assert decided[0].reason.numbers["wanted_by_trial"] == "3-1"
    assert decided[0].reason.numbers["slots_missing"] == 1
    assert short(driver.feed(exited("1-2-1", "preempted"))) == ["-1-2-1", "+3-1-1 a:1"]


def test_preemption_spares_what_is_not_needed(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, priority=60), submitted(2, priority=50, slots=3), *requested(1, 1), *requested(2, 1))
    driver.feed(submitted(3, priority=10, slots=3))
    assert short(driver.feed(*requested(3, 1))) == ["!2-1-1"]


def test_nobody_is_preempted_in_vain_or_by_an_equal(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1, priority=42), submitted(2, priority=60), *requested(1, 1), *requested(2, 1))
    driver.feed(submitted(3, priority=42, slots=2))
    assert short(driver.feed(*requested(3, 1))) == []


def test_slots_being_freed_count_so_that_no_more_are_preempted(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1, priority=60), *requested(1, 1, 2))
    driver.feed(stopped("1-1"), submitted(2, priority=10))
    assert short(driver.feed(*requested(2, 1))) == []
    assert short(driver.feed(*requested(2, 2))) == ["!1-2-1"]


def test_a_paused_trial_that_is_extended_before_it_left_is_no_longer_leaving(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1, priority=60), *requested(1, 1), paused("1-1"))
    driver.feed(submitted(2, priority=10))
    assert short(driver.feed(*requested(2, 1))) == []
    assert short(driver.feed(extended("1-1"))) == ["!1-1-1"]
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1", "+2-1-1 a:0"]


def test_paused_trials_wait_without_slots_until_they_are_extended(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    assert short(driver.feed(paused("1-1"), exited("1-1-1", "paused"))) == ["-1-1-1"]
    assert short(driver.feed(extended("1-1"))) == ["+1-1-2 a:0"]


def test_pausing_an_experiment_takes_its_slots_and_resuming_gives_them_back(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1), *requested(1, 1, 2))
    decided = driver.feed(ExperimentPauseRequested(experiment_id=1))
    assert short(decided) == ["!1-1-1", "!1-2-1"]
    assert {data.reason.rule for data in decided} == {"experiment_paused"}
    assert short(driver.feed(exited("1-1-1", "preempted"), *requested(1, 3))) == ["-1-1-1"]
    assert short(driver.feed(ExperimentResumeRequested(experiment_id=1))) == ["+1-1-2 a:0"]
    assert short(driver.feed(exited("1-2-1", "preempted"))) == ["-1-2-1", "+1-2-2 a:1"]


def test_a_trial_extended_while_its_experiment_is_paused_is_preempted(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1), paused("1-1"))
    assert short(driver.feed(ExperimentPauseRequested(experiment_id=1))) == []
    assert short(driver.feed(extended("1-1"))) == ["!1-1-1"]


def test_a_canceled_experiment_gets_no_more_and_leaves_the_state(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1, 2), submitted(2), *requested(2, 1))
    assert short(driver.feed(ExperimentCancelRequested(experiment_id=1, kill=True))) == []
    assert short(driver.feed(exited("1-1-1", "lost"))) == ["-1-1-1", "+2-1-1 a:0"]
    driver.feed(ExperimentResumeRequested(experiment_id=1), stopped("1-1"), stopped("1-2"))
    driver.feed(ExperimentCanceled(experiment_id=1, trials=2))
    assert list(driver.state.experiments) == [2]


def test_what_ended_leaves_the_state(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1), *requested(1, 1, 2, 3), stopped("1-3"), stopped("1-1"), exited("1-1-1"))
    assert sorted(driver.state.experiments[1].trials) == [2]
    driver.feed(stopped("1-2"), exited("1-2-1"))
    driver.feed(ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=3, reason=WHY))
    driver.feed(AgentLost(agent_id="a", reason="gone"))
    assert dataclasses.replace(driver.state, grants=0) == driver.core.initial()
    # What comes late about them changes nothing.
    assert driver.feed(extended("1-1"), exited("1-1-1", "lost"), failed("1-1-1"), *requested(1, 4)) == []
    assert dataclasses.replace(driver.state, grants=0) == driver.core.initial()


def test_an_experiment_that_ended_with_workers_running_is_kept_until_they_left(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    driver.feed(ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=1, reason=WHY))
    assert short(driver.feed(exited("1-1-1"))) == ["-1-1-1"]
    assert list(driver.state.experiments) == []


def test_a_failed_trial_waits_for_the_verdict(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1))
    assert short(driver.feed(exited("1-1-1", "failed"))) == ["-1-1-1"]
    assert short(driver.feed(failed("1-1-1"))) == ["+1-1-2 a:0"]
    assert short(driver.feed(exited("1-1-2", "failed"))) == ["-1-1-2"]
    assert short(driver.feed(failed("1-1-1"), failed("1-1-2", final=True), extended("1-1"))) == []


def test_a_lost_allocation_starts_again_elsewhere(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1), submitted(1), *requested(1, 1))
    assert short(driver.feed(AgentLost(agent_id="a", reason="lease"))) == []
    assert short(driver.feed(exited("1-1-1", "lost"))) == ["-1-1-1", "+1-1-2 b:0"]
    assert list(driver.state.agents) == ["b"]


def test_a_slot_stays_taken_when_its_agent_comes_back_before_the_workers_exit(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1, 2), AgentLost(agent_id="a", reason="lease"))
    assert short(driver.feed(joined("a", 1))) == []
    assert short(driver.feed(exited("1-1-1", "lost"))) == ["-1-1-1", "+1-1-2 a:0"]


def test_drained_agents_and_closed_slots_get_nothing_new(driver: Driver) -> None:
    closed = [SlotsClosed(agent_id="b", drain=True), SlotsClosed(agent_id="a", slot_id=0, drain=True)]
    driver.feed(joined("a", 2), joined("b", 1), *closed)
    assert short(driver.feed(submitted(1), *requested(1, 1, 2, 3))) == ["+1-1-1 a:1"]
    assert short(driver.feed(SlotsOpened(agent_id="a", slot_id=0))) == ["+1-2-1 a:0"]
    assert short(driver.feed(AgentLost(agent_id="b", reason="restart"), joined("b", 1))) == [], "it stays out of service"
    assert short(driver.feed(SlotsOpened(agent_id="b"))) == ["+1-3-1 b:0"]


def test_no_victim_where_its_slots_do_not_come_back(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1), submitted(1, priority=60), *requested(1, 1, 2))
    driver.feed(SlotsClosed(agent_id="b", drain=True))
    driver.feed(submitted(2, priority=10))
    assert short(driver.feed(*requested(2, 1))) == ["!1-1-1"]
    assert short(driver.feed(*requested(2, 2))) == []


def test_max_slots_bounds_an_experiment_and_can_be_lowered(driver: Driver) -> None:
    driver.feed(joined("a", 4), submitted(1, max_slots=3), submitted(2))
    assert short(driver.feed(*requested(1, 1, 2, 3, 4))) == ["+1-1-1 a:0", "+1-2-1 a:1", "+1-3-1 a:2"]
    assert short(driver.feed(*requested(2, 1))) == ["+2-1-1 a:3"]
    decided = driver.feed(ExperimentSlotLimitChanged(experiment_id=1, max_slots=1))
    assert short(decided) == ["!1-3-1", "!1-2-1"]
    assert decided[0].reason.rule == "slot_limit"
    driver.feed(exited("1-3-1", "preempted"))
    assert short(driver.feed(exited("1-2-1", "preempted"), ExperimentSlotLimitChanged(experiment_id=1, max_slots=None))) == [
        "-1-2-1", "+1-2-2 a:1", "+1-3-2 a:2",
    ]  # fmt: skip


def test_a_changed_priority_reorders_the_queue(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1), *requested(1, 1), submitted(2), *requested(2, 1), submitted(3), *requested(3, 1))
    driver.feed(ExperimentPriorityChanged(experiment_id=1, priority=40), ExperimentPriorityChanged(experiment_id=3, priority=41))
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1", "+3-1-1 a:0"]


def test_pools_do_not_mix(driver: Driver) -> None:
    driver.feed(joined("a", 1, pool="x"), submitted(1, pool="y"), *requested(1, 1))
    assert short(driver.feed(joined("b", 1, pool="y"))) == ["+1-1-1 b:0"]


def test_a_gang_never_mixes_gpus_and_cpus(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("g", 1, kind="cuda"), submitted(1, slots=2), *requested(1, 1))
    assert not driver.state.allocations
    assert short(driver.feed(joined("h", 1, kind="cuda"))) == ["+1-1-1 g:0 h:0"]


def test_an_agent_that_moves_to_another_pool_takes_its_free_slots_along(driver: Driver) -> None:
    driver.feed(joined("a", 2), submitted(1), *requested(1, 1), submitted(2, pool="y"), *requested(2, 1))
    assert short(driver.feed(joined("a", 2, pool="y"))) == ["+2-1-1 a:1"]
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"), *requested(2, 2))) == ["-1-1-1", "+2-2-1 a:0"]


def test_repeated_facts_decide_nothing_new(driver: Driver) -> None:
    facts = [joined("a", 2), submitted(1), *requested(1, 1)]
    driver.feed(*facts, paused("1-1"), exited("1-1-1", "paused"))
    before = driver.core.dump(driver.state)
    assert driver.feed(joined("a", 2), *requested(1, 1), paused("1-1"), exited("1-1-1", "paused")) == []
    assert driver.core.dump(driver.state) == before


def test_commands_are_refused(driver: Driver) -> None:
    @dataclasses.dataclass(frozen=True)
    class Order:
        id = NAMESPACE
        time_us = 0

    with pytest.raises(Refused, match="takes no commands"):
        driver.core.decide(driver.state, Order())


@pytest.mark.parametrize(
    ("free", "wanted", "expected"),
    [
        ({"a": 4, "b": 2}, 2, "b:0,1"),  # best fit keeps the large agent whole
        ({"a": 2, "b": 2}, 1, "a:0"),  # ties by name
        ({"a": 3, "b": 4, "c": 1}, 5, "b:0,1,2,3 c:0"),  # largest first, the rest where it fits best
        ({"a": 1, "b": 1, "c": 1}, 3, "a:0 b:0 c:0"),
        ({"b": 8, "a": 8}, 8, "a:0,1,2,3,4,5,6,7"),
    ],
)
def test_placement_packs(free: dict[str, int], wanted: int, expected: str) -> None:
    idle = tuple(sorted((count, agent) for agent, count in free.items()))
    slots = FreeSlots(idle, sum(free.values()), lambda agent: tuple(range(free[agent])))
    parts = slots.take(wanted)
    assert slots.count == sum(free.values()) - wanted
    assert " ".join(f"{part.agent_id}:{','.join(map(str, part.slot_ids))}" for part in parts) == expected
