"""Under fair share, gangs that no agents of the pool could ever hold: they take no share, and are told what they wait for."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.request import PoolPolicyChanged, ShareChanged, SlotsClosed, SlotsOpened
from tenuto.schemas.events.trial import LogMatched
from tenuto.schemas.queue import QueueAnswer, QueueQuestion, QueueRow
from tenuto.services.scheduler.explain import explain, queue_answer
from tenuto.services.scheduler.policies.turns import TURN_US
from tests.support.scheduler_driver import Driver, exited, fair, held, joined, requested, settle_all, short, submitted

NEVER: dict[str, tuple[dict[str, Any], str]] = {
    "on one agent": ({"slots": 6, "locality": "agent"}, "no_room"),
    "in one rack": ({"slots": 6, "locality": "rack"}, "no_room"),
    "labels": ({"agent_labels": ["disk=fast"]}, "no_room"),
    "device": ({"device": "A100"}, "no_room"),
    "excluded agents": ({"exclude_agents": ["a", "b"]}, "no_room"),
    "too few agents left": ({"slots": 5, "exclude_agents": ["a"]}, "no_room"),
    "larger than the pool": ({"slots": 9}, "too_large"),
    "larger than the pool, on one agent": ({"slots": 9, "locality": "agent"}, "too_large"),
}
"""Requests that two agents with four slots each can never meet, each with the reason of waiting."""


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.feed(fair(), joined("a", 4), joined("b", 4))
    return driver


def proven(driver: Driver) -> None:
    """Asserts that the decisions follow from the log alone."""
    settle_all(driver)
    assert verify_decisions(driver.core, driver.log).ok
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)


@pytest.mark.parametrize(("asked", "rule"), NEVER.values(), ids=NEVER)
def test_a_gang_that_can_never_start_takes_no_share(driver: Driver, asked: dict[str, Any], rule: str) -> None:
    """Its user has one-slot trials, too; another user with such trials has half of the pool all the same."""
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 9)), submitted(2, user="bob"), *requested(2, *range(1, 9)))
    driver.feed(submitted(3, user="eve", **asked), *requested(3, 1))
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 4}
    driver.time_passes(100 * TURN_US)
    rows = {row.experiment_id: row for row in explain(driver.state, "default", driver.now_us)}
    assert rows[3].rule == rule, rows[3].text
    assert rows[3].expected_us is None
    assert "turn" not in rows[3].text
    assert rows[3].share == 0
    proven(driver)


@pytest.mark.parametrize("policy", ["priority", "fifo", "fair_share"])
@pytest.mark.parametrize(("asked", "rule"), NEVER.values(), ids=NEVER)
def test_it_is_told_why_under_every_policy(asked: dict[str, Any], rule: str, policy: str) -> None:
    driver = Driver()
    driver.feed(PoolPolicyChanged.model_validate({"pool": "default", "policy": policy}), joined("a", 4), joined("b", 4))
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 12)), submitted(2, user="ada", **asked), *requested(2, 1))
    rows = {row.experiment_id: row for row in explain(driver.state, "default", driver.now_us)}
    assert rows[2].rule == rule
    driver.feed(submitted(4, user="ada", slots=8, priority=10), *requested(4, 1))
    rows = {row.experiment_id: row for row in explain(driver.state, "default", driver.now_us)}
    assert rows[2].rule == rule, "also where another gang waits"


def test_it_counts_again_when_an_agent_comes_that_can_hold_it(driver: Driver) -> None:
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 13)))
    driver.feed(submitted(2, user="bob", slots=2, agent_labels=["disk=fast"]), *requested(2, 1, 2, 3))
    assert held(driver) == {1: 8}
    driver.feed(joined("c", 4, labels=["disk=fast"]))
    settle_all(driver)
    assert held(driver) == {1: 8, 2: 4}, "two of its gangs at once, and no more than that agent holds"
    driver.feed(AgentLost(agent_id="c", reason="gone"), exited("2-1-1", "lost"), exited("2-2-1", "lost"))
    driver.feed(*requested(1, 13))
    settle_all(driver)
    assert held(driver) == {1: 8}
    proven(driver)


def test_closed_slots_count_as_if_they_were_not_there(driver: Driver) -> None:
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 9)))
    driver.feed(SlotsClosed(agent_id="b", slot_id=0, drain=False))
    settle_all(driver)
    driver.feed(submitted(2, user="bob", slots=4, locality="agent", exclude_agents=["a"]), *requested(2, 1))
    settle_all(driver)
    assert held(driver) == {1: 7}
    driver.feed(SlotsOpened(agent_id="b"))
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 4}
    proven(driver)


def test_more_gangs_than_fit_at_once_count_only_as_far_as_they_fit(driver: Driver) -> None:
    """Eight trials that only one slot in four may run do not want eight slots."""
    driver.feed(joined("c", 2, labels=["disk=fast"]), submitted(1, user="ada"), *requested(1, *range(1, 13)))
    driver.feed(submitted(2, user="bob", agent_labels=["disk=fast"]), *requested(2, *range(1, 9)))
    driver.feed(submitted(3, user="eve"), *requested(3, *range(1, 13)))
    settle_all(driver)
    assert {row.experiment_id: row.share for row in explain(driver.state, "default", driver.now_us)} == {1: 4, 2: 2, 3: 4}
    proven(driver)


def test_who_is_above_its_share_gives_way_where_a_gang_with_constraints_can_be(driver: Driver) -> None:
    """Also where it is not what was granted last: else a gang that may go to one agent only would wait for others' ends."""
    driver.feed(joined("c", 2, labels=["disk=fast"]), submitted(1, user="ada"), *requested(1, *range(1, 13)))
    assert [slots[0][0] for slots in (driver.state.allocations[f"1-{n}-1"].slots for n in (1, 2))] == ["c", "c"]
    decided = driver.feed(submitted(2, user="bob", agent_labels=["disk=fast"]), *requested(2, 1, 2, 3))
    assert sorted(short(decided)) == ["!1-1-1", "!1-2-1"]
    settle_all(driver)
    assert held(driver) == {1: 8, 2: 2}
    proven(driver)


def test_an_elastic_gang_wants_no_more_than_its_largest_room_holds(driver: Driver) -> None:
    driver.feed(ShareChanged(owner="user", name="bob", weight=9), submitted(1, user="ada"), *requested(1, *range(1, 9)))
    driver.feed(submitted(2, user="bob", slots={"min": 2, "max": 8}, exclude_agents=["a"]), *requested(2, 1))
    assert {row.experiment_id: row.share for row in explain(driver.state, "default", driver.now_us)} == {1: 4, 2: 4}
    driver.feed(submitted(3, user="eve", slots={"min": 5, "max": 8}, locality="agent"), *requested(3, 1))
    assert {row.experiment_id: row.share for row in explain(driver.state, "default", driver.now_us)} == {1: 4, 2: 4, 3: 0}
    proven(driver)


def test_trials_that_failed_everywhere_take_no_share(driver: Driver) -> None:
    """The log policies of an experiment keep one trial away from all agents; its other trials count still."""
    driver.feed(submitted(1, user="ada"), *requested(1, 1, 2), submitted(2, user="bob"), *requested(2, 1))
    for item in ("2-1-1", "2-1-2"):
        on = driver.state.allocations[item].slots[0][0]
        matched = {"trial_id": "2-1", "allocation_id": item, "agent_id": on, "pattern": "ECC", "line": "ECC"}
        driver.feed(LogMatched.model_validate({**matched, "action": "exclude_agent"}), exited(item, "preempted"))
    assert driver.state.experiments[2].trials[1].excluded == ("a", "b")
    rows = {row.experiment_id: row for row in explain(driver.state, "default", driver.now_us)}
    assert (rows[2].rule, rows[2].share) == ("no_room", 0)
    driver.feed(*requested(1, *range(3, 13)))
    settle_all(driver)
    assert held(driver) == {1: 8}
    driver.feed(*requested(2, 2))
    settle_all(driver)
    assert held(driver) == {1: 7, 2: 1}
    proven(driver)


def test_a_gang_larger_than_its_owners_quota_takes_no_share(driver: Driver) -> None:
    driver.feed(submitted(1, user="ada"), *requested(1, *range(1, 9)))
    driver.feed(ShareChanged(owner="user", name="bob", max_slots=2), submitted(2, user="bob", slots=4), *requested(2, 1))
    settle_all(driver)
    driver.time_passes(100 * TURN_US)
    rows = {row.experiment_id: row for row in explain(driver.state, "default", driver.now_us)}
    assert (rows[1].share, rows[2].share, rows[2].rule) == (8, 0, "limit"), rows[2].text
    driver.feed(ShareChanged(owner="user", name="bob", max_slots=4))
    settle_all(driver)
    assert held(driver) == {1: 4, 2: 4}
    proven(driver)


def test_it_keeps_no_slots_from_a_pool_that_may_borrow_them(driver: Driver) -> None:
    """What waits in a pool for agents that are not there does not stop the pool from lending."""
    driver.feed(submitted(1, agent_labels=["disk=fast"]), *requested(1, 1))
    decided = driver.feed(submitted(2, pool="small", fallback_pools=["default"]), *requested(2, 1))
    assert short(decided) == ["+2-1-1 a:0"]


@pytest.mark.parametrize("policy", ["priority", "fifo", "fair_share"])
def test_pages_of_the_queue_are_the_queue(policy: Any) -> None:
    driver = Driver()
    driver.feed(PoolPolicyChanged(pool="default", policy=policy), PoolPolicyChanged(pool="spare", policy=policy))
    driver.feed(joined("a", 2), joined("b", 1, pool="spare"))
    for number in range(1, 14):
        pool = "default" if number % 3 else "spare"
        driver.feed(submitted(number, user=f"user{number % 4}", priority=40 + number % 2, pool=pool), *requested(number, 1, 2))

    def asked(**question: Any) -> QueueAnswer:
        return queue_answer(driver.state, QueueQuestion(**question), driver.now_us)

    def rows(answer: QueueAnswer) -> list[QueueRow]:
        return [row for pool in answer.pools for row in pool.rows]

    whole = asked()
    assert not whole.more
    assert [len(pool.rows) for pool in whole.pools] == [9, 4]
    for size in (1, 2, 4, 9, 13):
        found, last = rows(page := asked(rows_max=size)), None
        while page.more:
            last = found[-1]
            page = asked(rows_max=size, after_pool=last.pool, after_position=last.position)
            assert len(rows(page)) <= size
            found += rows(page)
        assert found == rows(whole), size
        assert asked(pool="spare", rows_max=2, after_pool="spare", after_position=1).pools[0].rows == whole.pools[1].rows[1:3]
