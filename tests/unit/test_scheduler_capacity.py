"""What a provisioned pool lacks: recorded whole, when it changes, and no more than what slots would let start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tenuto.kernel.memo import Memo
from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeEnded, NodeReleased
from tenuto.schemas.events.pool import AllocationGranted, AllocationPreempted, CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.events.request import ExperimentPauseRequested, PoolPolicyChanged, ShareChanged, SlotsClosed
from tenuto.services.scheduler.policies import capacity
from tenuto.services.scheduler.policies.capacity import _demands
from tests.support.scheduler_driver import WHY, Driver, exited, joined, requested, stopped, submitted
from tests.unit.test_scheduler_properties import AGENTS, POOLS, AnyPolicy, TestAnyHistory


def provisioned(pool: str = "default", *, slots: int = 4, nodes_max: int = 10, kind: str = "slurm") -> PoolProvisioned:
    node_types = [{"slots": slots}]
    return PoolProvisioned.model_validate({"pool": pool, "provisioner": kind, "node_types": node_types, "nodes_max": nodes_max})


def wanted(decided: list[EventData]) -> list[list[tuple[int, int]]]:
    """(slots, gangs) of each CapacityWanted."""
    return [[(item.slots, item.count) for item in data.demands] for data in decided if isinstance(data, CapacityWanted)]


def last(driver: Driver, pool: str = "default") -> tuple[CapacityDemand, ...]:
    return driver.state.provisioned[pool].wanted


def test_a_pool_without_a_provisioner_says_nothing() -> None:
    driver = Driver()
    assert wanted(driver.feed(submitted(1, slots=4), *requested(1, 1, 2))) == []
    assert wanted(driver.feed(provisioned(kind="static"))) == []
    assert wanted(driver.feed(provisioned())) == [[(4, 2)]]
    assert driver.feed(provisioned(kind="static")) == []
    assert driver.state.provisioned.get("default") is None


def test_what_waits_is_wanted_once_and_not_any_more_when_it_starts() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1, slots=2))
    assert wanted(driver.feed(*requested(1, 1, 2, 3))) == [[(2, 1)], [(2, 2)], [(2, 3)]]
    decided = driver.feed(joined("default-1", 4))
    assert len([data for data in decided if isinstance(data, AllocationGranted)]) == 2
    assert wanted(decided) == [[(2, 1)]]
    assert wanted(driver.feed(stopped("1-1"), exited("1-1-1"))) == [[]], "the third starts on its slots"
    assert wanted(driver.feed(SlotsClosed(agent_id="default-1", drain=True))) == [], "closed slots alone want nothing"


def test_what_waits_is_told_by_image_so_that_new_nodes_can_pull_it() -> None:
    driver = Driver()
    driver.feed(provisioned())
    for number, image in enumerate(("torch:2", "jax:1", "torch:2", None), start=1):
        driver.feed(submitted(number, slots=2, image=image), *requested(number, 1))
    assert [(item.image, item.count, item.labels) for item in last(driver)] == [
        ("torch:2", 2, ("runtime:docker",)), ("jax:1", 1, ("runtime:docker",)), ("", 1, ()),
    ]  # fmt: skip


@pytest.mark.parametrize("environment", [{"pull": "never"}, {"registry_auth": "ada/registry"}])
def test_an_image_that_a_new_node_may_not_pull_is_not_told(environment: dict[str, Any]) -> None:
    """The credentials of a user come with a start alone."""
    driver = Driver()
    driver.feed(provisioned(), submitted(1, image="torch:2", environment=environment), *requested(1, 1))
    [found] = last(driver)
    assert (found.image, found.labels) == ("", ("runtime:docker",))


def test_no_number_of_images_hides_what_waits_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "DEMANDS_MAX", 2)
    driver = Driver()
    driver.feed(provisioned(nodes_max=100))
    for number in range(1, 7):
        driver.feed(submitted(number, slots=2, image=f"torch:{number}"), *requested(number, 1))
    assert [(item.image, item.count) for item in last(driver)] == [("torch:1", 5), ("torch:2", 1)]


def test_of_a_gang_that_may_be_anywhere_only_the_missing_slots_are_wanted() -> None:
    driver = Driver()
    driver.feed(provisioned(), joined("a", 3), submitted(1, slots=8), submitted(2, slots=8, locality="agent"))
    assert wanted(driver.feed(*requested(1, 1))) == [[(5, 1)]]
    assert wanted(driver.feed(*requested(2, 1))) == [[(5, 1), (8, 1)]]
    assert last(driver)[1].locality == "agent"


def test_workspaces_are_told_apart_where_costs_are_limited_by_workspace() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1, workspace="vision"), submitted(2, workspace="audio"))
    driver.feed(*requested(1, *range(1, 60)), *requested(2, 1))
    assert [(item.workspace, item.count) for item in last(driver)] == [("vision", 40)], "as many as nodes could hold"
    driver.feed(provisioned().model_copy(update={"workspace_cost_per_hour_max": {"*": 1.0}}))
    assert [(item.workspace, item.count) for item in last(driver)] == [("vision", 40), ("audio", 1)]


def test_slots_that_are_being_freed_for_a_gang_are_not_wanted() -> None:
    driver = Driver()
    driver.feed(provisioned(), joined("a", 4), submitted(1, slots=4, priority=60), *requested(1, 1))
    decided = driver.feed(submitted(2, slots=4, priority=10), *requested(2, 1))
    assert [data.allocation_id for data in decided if isinstance(data, AllocationPreempted)] == ["1-1-1"]
    assert wanted(decided) == []
    assert wanted(driver.feed(exited("1-1-1", "preempted"))) == [[(4, 1)]], "the one that gave way waits now"


def test_limits_quotas_and_pauses_keep_what_they_keep_back_from_being_wanted() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1, slots=2, max_slots=4), *requested(1, 1, 2, 3))
    assert [(item.slots, item.count) for item in last(driver)] == [(2, 2)]
    driver.feed(ShareChanged(owner="user", name="ada", max_slots=2))
    assert [(item.slots, item.count) for item in last(driver)] == [(2, 1)]
    assert wanted(driver.feed(ExperimentPauseRequested(experiment_id=1))) == [[]]


def test_a_long_queue_writes_no_event_at_each_start() -> None:
    driver = Driver()
    driver.feed(provisioned(nodes_max=2), submitted(1), *requested(1, *range(1, 101)))
    assert [(item.slots, item.count) for item in last(driver)] == [(1, 8)]
    decided = driver.feed(joined("default-1", 4), *(exited(f"1-{number}-1", "paused") for number in range(1, 5)))
    assert len([data for data in decided if isinstance(data, AllocationGranted)]) == 8
    assert wanted(decided) == []


def test_kinds_of_gangs_are_told_apart_and_alike_ones_counted() -> None:
    driver = Driver()
    driver.feed(
        provisioned(), submitted(1, slots=2), submitted(2, slots=2, image="torch:2"), submitted(3, slots=2, device="A100")
    )
    driver.feed(*requested(1, 1), *requested(2, 1), *requested(3, 1, 2))
    assert [(item.experiment_id, item.count, item.labels, item.device) for item in last(driver)] == [
        (1, 1, (), ""),
        (2, 1, ("runtime:docker",), ""),
        (3, 2, (), "a100"),
    ]


def test_what_is_wanted_follows_the_order_of_another_policy() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1, slots=2, priority=10), *requested(1, 1))
    driver.feed(submitted(2, slots=4, priority=5), *requested(2, 1))
    assert [item.experiment_id for item in last(driver)] == [2, 1]
    driver.feed(joined("b", 1, pool="other"))
    assert capacity.plan(driver.state) == [], "what it found is remembered from here"
    driver.feed(PoolPolicyChanged(pool="default", policy="fifo"))
    assert [item.experiment_id for item in last(driver)] == [1, 2]


def test_a_trial_without_slots_wants_a_node_if_there_is_none() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1, slots=0), *requested(1, 1, 2))
    assert [(item.slots, item.count) for item in last(driver)] == [(0, 1)]
    driver.feed(joined("default-1", 1))
    assert last(driver) == ()


@pytest.mark.parametrize(("home", "expected"), [(False, {"cloud": 4}), (True, {"default": 3})])
def test_a_gang_is_wanted_in_one_pool_only(home: bool, expected: dict[str, int]) -> None:
    """In its own if that is provisioned, else in the first that it may fall back to."""
    driver = Driver()
    driver.feed(provisioned("cloud"), *([provisioned("default")] if home else []), joined("a", 1), joined("b", 1, pool="cloud"))
    driver.feed(submitted(1, slots=4, fallback_pools=["elsewhere", "cloud"], locality="any" if home else "agent"))
    driver.feed(*requested(1, 1))
    found = {name: pool.wanted for name, pool in driver.state.provisioned.items()}
    assert {name: sum(item.slots * item.count for item in items) for name, items in found.items() if items} == expected


def test_nothing_begins_on_a_node_that_was_given_back_until_it_has_ended() -> None:
    driver = Driver()
    driver.feed(provisioned(), joined("default-1", 2), submitted(1), *requested(1, 1))
    driver.feed(NodeReleased(node_id="default-1", pool="default", reason=WHY))
    assert wanted(driver.feed(*requested(1, 2))) == [[(1, 1)]]
    assert not driver.state.allocations["1-1-1"].leaving, "what runs goes on"
    assert wanted(driver.feed(joined("default-1", 3))) == [], "another offer of the same agent changes nothing"
    decided = driver.feed(NodeReleased(node_id="default-1", pool="default", drain=False, reason=WHY))
    assert [data.allocation_id for data in decided if isinstance(data, AllocationPreempted)] == ["1-1-1"]
    driver.feed(exited("1-1-1", "preempted"), NodeEnded(node_id="default-1", pool="default"))
    assert not driver.state.nodes_ending
    driver.feed(joined("default-1", 2))
    assert last(driver) == ()


GANGS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 3), st.sampled_from(["any", "any", "agent"])), min_size=1, max_size=5
)


@settings(deadline=None, max_examples=60)
@given(gangs=GANGS, there=st.lists(st.integers(1, 4), max_size=3))
def test_with_the_slots_that_are_wanted_everything_starts(gangs: list[Any], there: list[int]) -> None:
    """A slot that was wanted for one gang may go to another, so what is wanted is given until nothing is."""
    driver = Driver(checks=False)
    driver.feed(provisioned(slots=64, nodes_max=100), *(joined(f"old-{at}", slots) for at, slots in enumerate(there)))
    for number, (slots, trials, locality) in enumerate(gangs, 1):
        driver.feed(submitted(number, slots=slots, locality=locality), *requested(number, *range(1, trials + 1)))
    given, trials = 0, sum(count for _, count, _ in gangs)
    while (demands := last(driver)) and given < 3 * trials:
        for demand in (item for item in demands for _ in range(item.count)):
            given += 1
            driver.feed(joined(f"default-{given}", demand.slots))
    assert last(driver) == ()
    assert [item.experiment_id for item in driver.state.experiments.values() if item.waiting] == []


class AnyProvisionedPool(AnyPolicy):
    """The same histories with pools that become provisioned, and with nodes that are given back."""

    @rule(pool=st.sampled_from(POOLS), nodes_max=st.integers(0, 3), kind=st.sampled_from(["slurm", "slurm", "static"]))
    def provision(self, pool: str, nodes_max: int, kind: str) -> None:
        self.driver.feed(provisioned(pool, nodes_max=nodes_max, kind=kind))

    @rule(agent=st.sampled_from(AGENTS), drain=st.booleans(), ended=st.booleans())
    def give_back(self, agent: str, drain: bool, ended: bool) -> None:
        released = NodeReleased(node_id=agent, pool="default", drain=drain, reason=WHY)
        self.driver.feed(NodeEnded(node_id=agent, pool="default") if ended else released)

    @invariant()
    def what_is_wanted_is_on_record(self) -> None:
        """Computed without anything remembered, it is what was recorded last."""
        state = self.driver.state
        for name in sorted(state.provisioned):
            known, pool = state.provisioned[name], state.pools.get(name)
            assert known.wanted == (_demands(state, pool, known) if pool is not None else ())
        assert capacity.plan(state) == []


def test_where_a_gang_is_wanted_follows_from_which_pools_have_a_provisioner() -> None:
    driver = Driver()
    driver.feed(provisioned("other"), joined("a", 1), joined("b", 1, pool="other"))
    driver.feed(submitted(1, slots=4, fallback_pools=["other"]), *requested(1, 1))
    assert [item.count for item in last(driver, "other")] == [1]
    assert capacity.plan(driver.state) == [], "what it found is remembered from here"
    driver.feed(provisioned("default"))
    assert ([item.count for item in last(driver)], last(driver, "other")) == ([1], ())
    driver.feed(provisioned("default", kind="static"))
    assert [item.count for item in last(driver, "other")] == [1]


TestAnyProvisionedPool = AnyProvisionedPool.TestCase
TestAnyProvisionedPool.settings = settings(TestAnyHistory.settings, max_examples=60)


def test_a_look_at_what_did_not_change_is_not_taken_again() -> None:
    driver = Driver()
    driver.feed(provisioned(), submitted(1), *requested(1, 1))
    pool = driver.state.pools["default"]
    assert capacity.plan(driver.state) == []
    assert capacity._looked_at(driver.state, pool)
    assert not capacity._looked_at(driver.state, replace(pool, memo=Memo())), "what is remembered is no part of the state"
