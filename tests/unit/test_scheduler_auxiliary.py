"""Trials that take no slots: they start at once beside whatever runs, and count in no share."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted
from tenuto.schemas.events.request import (
    ExperimentPauseRequested,
    ExperimentResumeRequested,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.queue import QueueQuestion
from tenuto.services.scheduler.explain import explain, queue_answer
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, short, stopped, submitted


@pytest.fixture
def driver() -> Driver:
    return Driver()


def why(driver: Driver, experiment: int) -> tuple[str, str]:
    (row,) = [row for row in explain(driver.state, "default", driver.now_us) if row.experiment_id == experiment]
    return row.rule, row.text


def test_they_start_at_once_where_all_slots_are_taken_and_a_gang_waits(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1), submitted(1), *requested(1, 1, 2), submitted(2, slots=2, priority=1))
    driver.feed(*requested(2, 1))
    driver.feed(submitted(3, slots=0, priority=99))
    assert short(driver.feed(*requested(3, 1, 2, 3))) == ["+3-1-1 a:", "+3-2-1 b:", "+3-3-1 a:"]
    assert driver.state.experiments[3].slots_used == 0
    assert held(driver) == {1: 2, 3: 0}


def test_each_starts_on_the_agent_that_has_the_fewest(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1), submitted(1, slots=0), *requested(1, 1, 2, 3))
    driver.feed(exited("1-2-1"), stopped("1-2"))
    assert short(driver.feed(*requested(1, 4))) == ["+1-4-1 b:"]


def test_an_agent_runs_a_bounded_number_and_the_next_one_is_told_so(driver: Driver) -> None:
    driver.feed(joined("a", 4, auxiliary_max=2), submitted(1, slots=0), *requested(1, 1, 2, 3))
    assert held(driver) == {1: 0}
    assert len(driver.state.allocations) == 2
    rule, text = why(driver, 1)
    assert rule == "agents_full"
    assert (
        text
        == "needs no slots, but the only agent of pool default that may run it has as many such trials as it takes (2 in all)"
    )
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1", "+1-3-1 a:"]
    driver.feed(joined("a", 4, auxiliary_max=0), stopped("1-2"), exited("1-2-1"))
    assert short(driver.feed(*requested(1, 4))) == []
    assert short(driver.feed(joined("b", 1))) == ["+1-4-1 b:"]


def test_the_more_urgent_one_gets_the_room_that_there_is(driver: Driver) -> None:
    driver.feed(joined("a", 1, auxiliary_max=1), submitted(1, slots=0), *requested(1, 1), submitted(2, slots=0), *requested(2, 1))
    driver.feed(submitted(3, slots=0, priority=1), *requested(3, 1))
    assert [row.experiment_id for row in explain(driver.state, "default", driver.now_us)] == [3, 1, 2]
    assert short(driver.feed(stopped("1-1"), exited("1-1-1"))) == ["-1-1-1", "+3-1-1 a:"]


def test_one_without_any_agent_waits_and_says_so(driver: Driver) -> None:
    driver.feed(submitted(1, slots=0), *requested(1, 1))
    assert why(driver, 1)[0] == "no_room"
    driver.feed(joined("a", 1), SlotsClosed(agent_id="b", slot_id=None, drain=True))
    assert list(driver.state.allocations) == ["1-1-1"]
    assert short(driver.feed(joined("b", 1), *requested(1, 2))) == ["+1-2-1 a:"]
    assert short(driver.feed(SlotsOpened(agent_id="b", slot_id=None), *requested(1, 3))) == ["+1-3-1 b:"]


def test_it_goes_on_elsewhere_when_its_agent_is_lost(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1), submitted(1, slots=0), *requested(1, 1))
    driver.feed(AgentLost(agent_id="a", reason="lease"))
    assert driver.state.allocations["1-1-1"].leaving == "agent_lost"
    assert short(driver.feed(exited("1-1-1", "lost"))) == ["-1-1-1", "+1-1-2 b:"]
    assert "a" not in driver.state.agents


@pytest.mark.parametrize("drain", [True, False])
def test_an_agent_taken_out_of_service_gets_no_more_and_keeps_them_only_if_drained(driver: Driver, drain: bool) -> None:
    driver.feed(joined("a", 1), submitted(1, slots=0), *requested(1, 1))
    decided = driver.feed(SlotsClosed(agent_id="a", slot_id=None, drain=drain))
    assert short(decided) == ([] if drain else ["!1-1-1"])
    assert short(driver.feed(*requested(1, 2))) == []
    assert short(driver.feed(joined("b", 1))) == ["+1-2-1 b:"]
    driver.feed(SlotsClosed(agent_id="b", drain=True))
    assert short(driver.feed(*requested(1, 3))) == []


def test_a_closed_slot_is_nothing_to_them(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1, slots=0), *requested(1, 1))
    assert short(driver.feed(SlotsClosed(agent_id="a", slot_id=0, drain=False), *requested(1, 2))) == ["+1-2-1 a:"]


def test_they_are_paused_and_resumed_like_others(driver: Driver) -> None:
    driver.feed(joined("a", 1), submitted(1, slots=0), *requested(1, 1))
    [preempted] = driver.feed(ExperimentPauseRequested(experiment_id=1))
    assert isinstance(preempted, AllocationPreempted)
    assert preempted.reason.rule == "experiment_paused"
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1"]
    assert short(driver.feed(ExperimentResumeRequested(experiment_id=1))) == ["+1-1-2 a:"]


def test_a_fallback_pool_lends_room_while_none_of_its_own_waits(driver: Driver) -> None:
    driver.feed(joined("a", 1, auxiliary_max=1), joined("b", 1, pool="spare", auxiliary_max=1))
    driver.feed(submitted(1, slots=0, fallback_pools=["spare"]), *requested(1, 1))
    [lent] = driver.feed(*requested(1, 2))
    assert isinstance(lent, AllocationGranted)
    assert (lent.pool, lent.reason.rule) == ("spare", "auxiliary.lent")
    driver.feed(*requested(1, 3), submitted(2, slots=0, pool="spare"), *requested(2, 1))
    assert short(driver.feed(stopped("1-2"), exited("1-2-1"))) == ["-1-2-1", "+2-1-1 b:"]


def test_they_count_in_no_share_quota_or_use(driver: Driver) -> None:
    driver.feed(fair(half_life=1.0), joined("a", 4), ShareChanged(owner="user", name="ada", weight=1.0, max_slots=2))
    driver.feed(submitted(1, slots=0), *requested(1, *range(1, 9)), submitted(2), *requested(2, *range(1, 9)))
    assert held(driver) == {1: 0, 2: 2}
    assert len(driver.state.allocations) == 10
    assert dict(driver.state.owner_slots) == {"workspace/default": 2, "user/ada": 2}
    (queue,) = queue_answer(driver.state, QueueQuestion(), driver.now_us).pools
    assert (queue.free, queue.auxiliary_trials) == (2, 8)
    assert [(row.experiment_id, row.slots, row.auxiliary_trials) for row in queue.rows] == [(1, 0, 8), (2, 2, 0)]


def test_labels_and_excluded_agents_hold_for_them(driver: Driver) -> None:
    driver.feed(joined("a", 1), joined("b", 1, labels=["disk=fast"]), joined("c", 1, labels=["disk=fast"]))
    driver.feed(submitted(1, slots=0, agent_labels=["disk=fast"], exclude_agents=["b"]))
    assert short(driver.feed(*requested(1, 1, 2))) == ["+1-1-1 c:", "+1-2-1 c:"]


def test_the_record_replays_to_the_same_bytes(driver: Driver) -> None:
    driver.feed(joined("a", 2, auxiliary_max=2), joined("b", 1), submitted(1), *requested(1, 1, 2, 3))
    driver.feed(
        submitted(2, slots=0), *requested(2, *range(1, 7)), exited("2-1-1", "failed"), AgentLost(agent_id="a", reason="x")
    )
    driver.feed(*(exited(item, "lost") for item in sorted(driver.state.allocations)))
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)
    verdict = verify_decisions(driver.core, driver.log)
    assert verdict.ok
    assert verdict.decisions > 10


@pytest.mark.parametrize(("resources", "words"), [({"max_slots": 4}, "max_slots"), ({"device": "A100"}, "device")])
def test_a_limit_of_slots_on_a_trial_without_any_is_refused(resources: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"{words}: a trial with slots_per_trial: 0 uses no slots"):
        ExperimentConfig.model_validate(
            {
                "name": "x",
                "entrypoint": "train.py",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
                "resources": {"slots_per_trial": 0, **resources},
            }
        )
