"""Nodes are requested for what waits: whole gangs, in the queue's order, of the first type that can be had, within the limits."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.schemas.events.node import NodeRequested
from tenuto.schemas.sentences import sentence
from tenuto.services.launcher.effects.nodes import environment_of
from tenuto.services.launcher.policies.provisioning.requests import standings
from tests.support.nodes_driver import NodesDriver, demand, failed, released, requested

EIGHT = {"name": "eight", "slots": 8}
ONE = {"name": "one", "slots": 1}


def driver(*node_types: dict[str, Any], **settings: Any) -> NodesDriver:
    return NodesDriver(node_types=list(node_types or (EIGHT,)), **settings)


def test_small_gangs_share_a_node_and_what_is_coming_is_not_requested_again() -> None:
    run = driver()
    assert requested(run.want(demand(3, count=2))) == ["eight"]
    assert requested(run.want(demand(3, count=2))) == []
    assert requested(run.want(demand(3, count=2), demand(2, experiment=2))) == []
    assert requested(run.want(demand(3, count=2), demand(4, experiment=2))) == ["eight"]
    run.start(1)
    assert requested(run.pass_time(5)) == []  # the scheduler has not had the time to use it


def test_a_gang_of_many_nodes_is_one_group_with_its_numbers() -> None:
    run = driver()
    decided = run.want(demand(20, experiment=4))
    nodes = [data for data in decided if isinstance(data, NodeRequested)]
    assert [(data.node_id, data.group, data.slots) for data in nodes] == [(f"gpus-{n}", "gpus-1", 8) for n in (1, 2, 3)]
    assert nodes[0].reason.rule == "demand"
    assert nodes[0].reason.numbers == {
        "experiment": 4, "slots_wanted": 20, "slots_coming": 0, "nodes": 3, "nodes_now": 0, "nodes_max": 10,
    }  # fmt: skip
    told = sentence("NodeRequested", {"reason": nodes[0].reason.model_dump()}, "launcher/2")
    assert told == (
        "A gang of experiment 4 lacks 20 slots; this node is one of 3 together for it. The pool has 0 nodes of at most 10."
    )
    assert requested(run.want(demand(20, experiment=4), demand(4, experiment=5))) == []  # the rest of the third


def test_the_nodes_of_a_gang_pull_its_image_while_they_join() -> None:
    run = driver({**EIGHT, "images": True})
    run.want(demand(16, labels=("runtime:docker",), image="torch:2"), demand(8, experiment=2))
    assert [run.node(number).image for number in (1, 2, 3)] == ["torch:2", "torch:2", ""]
    assert environment_of(run.node(2))["TENUTO_DOCKER_PULL_IMAGE"] == "torch:2"
    assert "TENUTO_DOCKER_PULL_IMAGE" not in environment_of(run.node(3))


def test_a_gang_that_misses_a_node_counts_on_the_others() -> None:
    run = driver(EIGHT, {**EIGHT, "name": "other"})
    run.want(demand(24))
    decided = run.look(pending=(2,), running=(1,), failures=[(3, "capacity")])
    assert run.phases() == {1: "started", 2: "requested", 4: "requested"}
    assert requested(decided) == ["other"]
    [data] = [data for data in decided if isinstance(data, NodeRequested)]
    assert data.reason.numbers["slots_coming"] == 16


def test_nodes_that_came_early_wait_for_the_others_of_their_gang() -> None:
    run = driver()
    run.want(demand(16))
    run.look((1,), pending=(2,))
    run.join(1)
    run.want(demand(8))  # the scheduler has laid half of the gang on the first
    assert run.pass_time(100_000) == []
    assert released(run.look(ended=(2,))) == {1: "idle"}, "nothing comes for the rest"


def test_a_node_that_has_just_come_is_left_to_the_scheduler() -> None:
    run = driver()
    run.want(demand(8))
    run.start(1)
    assert requested(run.pass_time(14)) == []
    # The scheduler had the time, and does not use it: for a reason that is not known, so another one is asked for.
    assert requested(run.pass_time(1)) == ["eight"]


def test_a_gang_in_one_rack_counts_on_idle_nodes_there() -> None:
    run = driver({**EIGHT, "labels": ("rack=1",)})
    run.want(demand(16, locality="rack"))
    run.start(1)
    assert requested(run.pass_time(100)) == []
    run.start(2)
    assert requested(run.pass_time(14)) == []
    assert requested(run.pass_time(1)) == ["eight", "eight"]


def test_a_gang_is_had_whole_or_asks_for_nothing() -> None:
    run = driver(nodes_max=4)
    run.want(demand(8, count=2))
    run.start(1, 2)
    run.grant(1, slots=8)
    run.grant(2, slots=8)
    assert requested(run.want(demand(24))) == []
    run.look((1, 2))
    assert requested(run.pass_time(3_600)) == []


def test_what_never_fits_is_passed_over_and_what_fits_later_holds_the_rest_back() -> None:
    run = driver(nodes_max=3)
    never = [
        demand(8 * 4), demand(9, locality="agent"), demand(1, device="h100", experiment=2), demand(1, labels=("a=b",)),
        demand(16, locality="rack"),
    ]  # fmt: skip
    run.provision(node_types=[{**EIGHT, "device": "NVIDIA A100"}], nodes_max=3)
    assert requested(run.want(*never)) == []
    assert requested(run.want(*never, demand(1, device="a100"))) == ["eight"]
    run.start(1)
    run.grant(1)
    run.pass_time(40)
    # Three nodes are needed, and one is taken: smaller ones behind must not take the other two for ever.
    assert requested(run.want(demand(24), demand(8, experiment=2))) == []
    assert requested(run.want(demand(8, experiment=2))) == ["eight"]


def test_labels_images_racks_and_devices_are_respected() -> None:
    run = driver(
        {"name": "plain", "slots": 4, "device": "A100"},
        {"name": "images", "slots": 4, "images": True, "device": "A100"},
        {"name": "racked", "slots": 4, "labels": ("rack=7", "zone=a"), "device": "H100"},
    )
    assert requested(run.want(demand(2, labels=("runtime:docker",)))) == ["images"]
    assert requested(run.want(demand(2, labels=("runtime:docker",)), demand(8, locality="rack"))) == ["racked", "racked"]
    assert requested(run.want(demand(2, labels=("zone=a",), device="h1"), demand(2, device="a100", count=6))) == [
        "plain",
        "plain",
    ]


def test_what_a_type_really_offers_is_trusted_more_than_its_settings() -> None:
    run = driver({"name": "unknown", "slots": 8}, {"name": "known", "slots": 8, "device": "H100"})
    assert requested(run.want(demand(1, device="h100"))) == ["unknown"]
    run.look((1,))
    run.join(1, slots=4, device="NVIDIA A100")
    assert requested(run.pass_time(31)) == ["known"]
    assert requested(run.want(demand(8, locality="agent"))) == []  # the known one has 8


def test_one_node_with_a_defect_does_not_speak_for_its_type_for_ever() -> None:
    run = driver()
    run.want(demand(8, locality="agent"))
    run.look((1,))
    run.join(1, slots=7)
    run.grant(1)
    assert requested(run.pass_time(3_599)) == []
    assert requested(run.pass_time(1)) == ["eight"]


def test_the_next_type_is_taken_while_the_first_cannot_be_had() -> None:
    run = driver({"name": "cheap", "slots": 1, "cost_per_hour": 1.0}, {"name": "dear", "slots": 1, "cost_per_hour": 3.0})
    assert requested(run.want(demand())) == ["cheap"]
    decided = run.look(failures=[(1, "capacity")])
    assert (failed(decided), requested(decided)) == ({1: "capacity"}, ["dear"])
    assert requested(run.want(demand(count=3))) == ["dear", "dear"]
    run.seconds += 31
    assert requested(run.want(demand(count=4))) == ["cheap"]


def test_waits_after_failures_double_up_to_a_bound_and_end_when_a_node_is_of_use() -> None:
    run = driver(ONE)
    run.want(demand(count=2))
    waits = []
    for _ in range(9):
        new = [node.number for node in run.pool.in_order() if node.phase == "requested"]
        assert len(new) == 2
        run.look(failures=[(number, "quota") for number in new])  # two at once are one attempt
        run.look()
        backoff = run.pool.backoffs["one"]
        waits.append(round(backoff.until_us / 1e6 - run.seconds))
        assert requested(run.pass_time(waits[-1] - 1)) == []
        assert requested(run.pass_time(1)) == ["one", "one"]
    assert waits == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
    number = min(node.number for node in run.pool.in_order())
    run.start(number)
    assert run.pool.backoffs
    run.grant(number)
    assert not run.pool.backoffs


def test_refused_orders_wait_longer_and_new_settings_end_the_wait() -> None:
    run = driver(ONE)
    run.want(demand())
    run.look(failures=[(1, "refused")])
    assert run.pool.backoffs["one"].until_us == run.now_us + 300_000_000
    assert requested(run.provision(node_types=[ONE], settings={"partition": "gpu"})) == ["one"]


def test_an_unreachable_provider_decides_nothing() -> None:
    run = driver(ONE)
    run.want(demand())
    assert run.look(failures=[(1, "unreachable")]) == []
    assert [[node.node_id for node in group] for group in run.orders().start] == [["gpus-1"]]


def test_the_cost_limit_counts_every_node_on_record() -> None:
    run = driver({"name": "dear", "slots": 1, "cost_per_hour": 3.0}, {"name": "cheap", "slots": 1, "cost_per_hour": 1.0},
                 cost_per_hour_max=5.0)  # fmt: skip
    assert requested(run.want(demand(count=9))) == ["dear", "cheap", "cheap"]
    run.start(1, 2, 3)
    run.release(1)
    assert requested(run.pass_time(60)) == []  # it may still be paid for
    run.lose(1)
    assert requested(run.look((2, 3))) == ["dear"]


def test_some_nodes_are_kept_whether_work_waits_or_not() -> None:
    run = driver(ONE, nodes_min=2)
    assert run.phases() == {1: "requested", 2: "requested"}
    run.start(1, 2)
    assert released(run.pass_time(3_000)) == {}
    run.provision(node_types=[ONE], nodes_min=1)
    assert released(run.pass_time(1)) == {} or run.phases()[1] == "released"
    assert sorted(run.phases().values()) == ["joined", "released"]


def test_ids_count_up_and_names_of_agents_are_passed_over() -> None:
    run = NodesDriver(pool="p", provisioner="static")
    assert not run.state.pools
    for name in ("p-4", "p-x", "q-9"):
        _join_by_hand(run, name)
    run.provision(node_types=[ONE])
    run.want(demand())
    assert run.phases() == {5: "requested"}
    _join_by_hand(run, "p-6")
    run.want(demand(count=2))
    assert run.phases() == {5: "requested", 7: "requested"}
    assert _join_by_hand(run, "p-6", labels=("a=b",)), "an agent that people started is not taken for an ended node"
    assert _join_by_hand(run, "p-4", labels=("a=b",))
    for number in (5, 7):
        run.release(number)
    run.look()
    assert run.phases() == {8: "requested", 9: "requested"}
    assert _join_by_hand(run, "p-5") == [], "an ended node comes back"


def _join_by_hand(run: NodesDriver, name: str, **said: Any) -> Any:
    from tenuto.schemas.assignments import Heartbeat
    from tenuto.services.launcher.commands import RecordHeartbeat

    beat = Heartbeat(agent_id=name, spool_id="s", pool="p", host="h", version="1", slots=(), allocations=(), **said)
    return run.command(RecordHeartbeat, beat, True)


@pytest.mark.parametrize("slots", [0, 1])
def test_a_trial_without_slots_needs_a_node_too(slots: int) -> None:
    assert requested(driver(ONE).want(demand(slots))) == ["one"]


def test_people_are_told_what_comes_and_why_nothing_more_does() -> None:
    run = driver({**EIGHT, "device": "A100"}, {**ONE, "device": "T4"}, nodes_max=3)
    queue = (
        demand(8, count=2, device="a100"), demand(32), demand(1, count=3, device="t4", experiment=2), demand(8, experiment=3),
    )  # fmt: skip
    run.want(*queue)

    def told() -> list[tuple[int, str]]:
        return [(item.gangs_coming, item.hindrance) for item in standings(run.state, run.pool, run.now_us)]

    assert told() == [(2, ""), (0, "never"), (1, "limits"), (0, "limits")]
    run.look((1, 2), failures=[(3, "capacity")])
    assert told() == [(2, ""), (0, "never"), (0, "later"), (1, "")]
    [later] = [item for item in standings(run.state, run.pool, run.now_us) if item.hindrance == "later"]
    assert later.retry_at_us == run.now_us + 30_000_000
